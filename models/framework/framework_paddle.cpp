// Presets of Paddle's static graph executor, in which the passes of Paddle's pull requests were
// measured: what a pull request changed is a choice of the strategy (docs/accuracy.md, Seeds).
#include "models/framework/framework_families.h"

namespace plimsoll {

/// Paddle 2.1 (2021-05) on V100s.
Framework paddle_2_1() {
  Framework framework = pytorch_on_gpu();
  framework.name = "paddle-2.1";
  framework.can = paddle_can();
  framework.allocator = paddle_allocator();
  framework.lazy_optimizer_state = false;
  framework.sources.allocator =
      "paddle/fluid/memory/allocation/auto_growth_best_fit_allocator.cc; state is made by the "
      "startup program";
  framework.fused_bias = false;
  framework.squared_norm = false;
  framework.separate_qkv = true;
  framework.sequence_parallel = false;
  framework.overlap_grad_reduce = false;
  framework.overlap_param_gather = false;
  framework.dispatch_op = Seconds(18e-6);
  framework.ops_per_kernel = 3;
  framework.backward_dispatch = 1;  // one executor runs forward and backward
  framework.host_reads_norm = false;
  framework.sources.kernels =
      "PaddleNLP 2.1 ernie and gpt modeling.py: linear layers as matmul_v2 and elementwise_add, "
      "q_proj, k_proj and v_proj, softmax and dropout as ops; clip by global norm: square, "
      "reduce_sum and scale for each gradient (Paddle pull request 33461)";
  framework.sources.parallelism =
      "fleet/meta_optimizers/sharding_optimizer.py: sharding by owners, with or without a pipeline "
      "(PipelineOptimizer, 1F1B since 2.1); sends have a stream of their own; gradients are "
      "reduced after the last micro-batch";
  framework.sources.dispatch =
      "an op: 18 us, within the 14 to 22 us for each cast that pull requests 34965 and 35878 "
      "removed on hosts of V100s; ops for a kernel: 3, fitted to the step time of 34965 on 2 x 2 x "
      "2 GPUs: PaddleNLP's encoder layer has 1.3 of its own for a kernel here (reshapes, "
      "transposes, scales), and casts, gradient sums and garbage collection come on top; the "
      "product, 54 us, is what Megatron-LM of 2021 takes for a kernel here";
  return framework;
}

/// Paddle 2.2 (2021-10) on V100s: the same executor; its new passes are choices of the strategy.
Framework paddle_2_2() {
  Framework framework = paddle_2_1();
  framework.name = "paddle-2.2";
  return framework;
}

/// Paddle 2.1 on Ascend 910 NPUs.
Framework paddle_npu() {
  Framework framework = paddle_2_1();
  framework.name = "paddle-2.1-npu";
  framework.dispatch_op = Seconds(102e-6);
  framework.sources.dispatch =
      "121.7 ms for 1,194 ops that flattening removes (pull request 33461); ops for a kernel as on "
      "GPUs";
  return framework;
}

}  // namespace plimsoll
