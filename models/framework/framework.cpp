// Framework presets: how each executor runs ops, with the source of every number.
#include "models/framework/framework.h"

#include <fmt/format.h>

#include "base/error.h"
#include "models/framework/framework_families.h"

namespace plimsoll {

Framework bundled_framework() {
  Framework framework;
  framework.name = "bundled";
  framework.can.context_exchange = {{}, "runtime: no such kernels"};
  framework.can.fp8 = {{Fp8::none}, "runtime: no such kernels"};
  framework.fused_bias = true;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  framework.receives_ahead = true;
  // One oneDNN primitive execution takes 0.26 us, plus the walk to it.
  framework.dispatch_op = Seconds(0.3e-6);
  // oneDNN 2.6 brgemm scratch of weight gradients stops growing at 1681 KiB (hidden 64 to 1024,
  // 32 to 8192 tokens); Backend::prepare refuses an op that needs more.
  framework.workspace = mebibytes(2);
  framework.sources = {
      .kernels = "runtime/cpu: oneDNN matmul with bias; one kernel per op",
      .parallelism = "passes and runtime/executor.cpp",
      .dispatch = "measured on an AVX-512 host; a calibration measures it anew",
      .waits = "",
      .memory = "runtime/cpu: oneDNN user scratchpad; the local communicator copies between arenas",
      .allocator =
          "passes/layout/plan_memory.h; runtime/executor.cpp takes one block for each rank",
  };
  return framework;
}

Framework bundled_cuda_framework() {
  Framework framework = bundled_framework();
  framework.name = "bundled-cuda";
  framework.flash_attention = true;
  framework.can.recompute = {{Recompute::none, Recompute::full},
                             "runtime/cuda: flash attention keeps no scores to repeat"};
  framework.dispatch_op = Seconds(4e-6);
  // cuBLASLt is recommended 32 MiB on Hopper; sums of columns and norms keep partial sums there.
  framework.workspace = mebibytes(32);
  const Framework nccl = pytorch_on_gpu();
  framework.context_memory = nccl.context_memory;
  framework.pair_communicator_memory = nccl.pair_communicator_memory;
  framework.communicator_memory = nccl.communicator_memory;
  framework.sources = {
      .kernels = "runtime/cuda: cuBLASLt matmul with bias, own flash attention, one kernel per op",
      .parallelism = framework.sources.parallelism,
      .dispatch =
          "assumed, not measured: a kernel launch takes a host of today a few us; replayed "
          "graphs take less",
      .waits = "",
      .memory =
          "workspace: cuBLAS manual, cublasSetWorkspace, Hopper; communicators and context: " +
          nccl.sources.memory,
      .allocator = bundled_framework().sources.allocator,
  };
  return framework;
}

bool runs_here(const Framework& framework) {
  return framework.name == bundled_framework().name ||
         framework.name == bundled_cuda_framework().name;
}

bool lowers_alike(Framework a, const Framework& b) {
  a.dispatch_op = b.dispatch_op;
  a.host_wait = b.host_wait;
  a.backward_dispatch = b.backward_dispatch;
  a.context_memory = b.context_memory;
  a.pair_communicator_memory = b.pair_communicator_memory;
  a.communicator_memory = b.communicator_memory;
  a.sources.dispatch = b.sources.dispatch;
  a.sources.memory = b.sources.memory;
  return a == b;
}

std::vector<Framework> all_frameworks() {
  return {bundled_framework(),
          bundled_cuda_framework(),
          megatron_lm(),
          megatron_fsdp(),
          megatron_lm_2022(),
          megatron_lm_2021(),
          megatron_deepspeed(),
          megatron_deepspeed_2020(),
          pytorch_fsdp(),
          torchtitan(),
          torchtitan_compiled(),
          torchtitan_async_tp(),
          pytorch_autocast(),
          deepspeed_zero3(ZeroGather::before),
          deepspeed_zero3(ZeroGather::list),
          deepspeed_zero3(ZeroGather::flat),
          paddle_2_1(),
          paddle_2_2(),
          paddle_npu(),
          megatron_core_deterministic()};
}

std::int64_t padded_vocabulary(std::int64_t rows, const Framework& framework, std::int64_t mp) {
  const std::int64_t multiple = framework.vocabulary_multiple * mp;
  return (rows + multiple - 1) / multiple * multiple;
}

Framework framework_by_name(std::string_view name) {
  std::string known;
  for (const Framework& framework : all_frameworks()) {
    if (framework.name == name) return framework;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", framework.name);
  }
  throw UsageError(fmt::format("no framework is called \"{}\"; known: {}", name, known));
}

}  // namespace plimsoll
