// Presets of DeepSpeed's ZeRO-3 around pull request 1188, which fetched the parameters of a module
// together.
#include "models/framework/framework_families.h"

namespace plimsoll {
namespace {

/// Host time of a fetch beside what any op costs: hooks in Python, the launch, the device
/// synchronisation. Fitted to the six times of forward and backward that the pull request prints;
/// its author counts 130 us before the launch and 250 us for it (DeepSpeed issue 1174).
constexpr Seconds kFetch{0.16e-3};
/// On top where a collective has a list of tensors instead of one: it goes through a buffer of its
/// own, with a copy kernel for each rank. Published: 1.1 ms for a layer, which has 8 modules.
constexpr Seconds kList{0.1375e-3};

}  // namespace

Framework deepspeed_zero3(ZeroGather gather) {
  Framework framework = pytorch_on_gpu();
  const bool before = gather == ZeroGather::before, flat = gather == ZeroGather::flat;
  framework.name = before ? "deepspeed-zero3-2021"
                          : (flat ? "deepspeed-zero3-1188-flat" : "deepspeed-zero3-1188");
  framework.separate_qkv = true;
  framework.backward_dispatch = 1;  // what its hooks cost was fitted so
  framework.can = deepspeed_zero3_can();
  framework.sequence_parallel = false;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  framework.host_reads_norm = true;
  framework.host_waits_for_gathers = true;
  framework.dispatch_gather = flat ? kFetch : kFetch + kList;
  framework.dispatch_gradient = kFetch + kList;
  framework.sources.kernels =
      "DeepSpeedExamples bing_bert, nvidia/modelingpreln.py: separate query, key and value, "
      "unfused attention (from memory)";
  framework.sources.parallelism =
      "DeepSpeed runtime/zero/partition_parameters.py and stage3.py at pull request 1188 and its "
      "parent: a gather of every tensor, a reduce-scatter of every gradient in backward";
  framework.sources.dispatch =
      framework.sources.dispatch +
      "; 0.16 ms for a fetch: fitted to the six times of pull request 1188, whose author counts "
      "0.38 ms with the launch and its copies (issue 1174); 0.14 ms for lists of tensors: 1.1 ms "
      "for "
      "the 8 modules of a layer (1188); a gradient costs as much as a gather with a list";
  framework.sources.waits =
      "runtime/zero/partition_parameters.py: torch.cuda.synchronize after the gathers of a tensor "
      "(before) or a module (after); stage3.py: overflow and norm are read with item()";
  return framework;
}

}  // namespace plimsoll
