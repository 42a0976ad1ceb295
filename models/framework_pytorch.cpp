// Presets of PyTorch and of what is built on it beside Megatron-LM.
#include "models/framework_families.h"

namespace plimsoll {

/// What PyTorch on an NVIDIA GPU has in common over the years.
Framework pytorch_on_gpu() {
  Framework framework;
  framework.recompute_repeats_all = true;  // core/tensor_parallel/random.py: CheckpointFunction
  framework.stores_dropout_masks = true;   // torch.native_dropout, and arXiv 2205.05198 section 4.1
  framework.dispatch_op = Seconds(8e-6);
  framework.sources.dispatch =
      "lower end of the 8 to 15 us per op that removing cast ops saved on hosts of V100 GPUs "
      "(Paddle "
      "static graph executor); not measured for PyTorch, whose eager dispatch is of that order";
  // cuBLAS workspace before Hopper, ":4096:2:16:8" = 2 * 4096 KiB + 8 * 16 KiB, for the handle of
  // the thread that runs forward and for that of autograd's.
  framework.workspace = 2 * Bytes(std::int64_t{2 * 4096 + 8 * 16} << 10);
  framework.context_memory = mebibytes(450);
  framework.pair_communicator_memory = mebibytes(544);
  framework.communicator_memory = mebibytes(688);
  framework.sources.memory =
      "workspace: PyTorch 2 aten/src/ATen/cuda/CublasHandlePool.cpp; communicators: NCCL issue "
      "964, "
      "2023-08-16, 4 A100 with NVLink; context: CUDA 11 on A100, from memory, no document";
  framework.allocator = pytorch_allocator();
  framework.lazy_optimizer_state = true;
  framework.copies_rotary = true;
  framework.sources.allocator =
      "PyTorch c10/cuda/CUDACachingAllocator.cpp; state is made in the first step(): "
      "torch/optim/adamw.py _init_group, apex/optimizers/fused_adam.py; turned queries and keys "
      "are "
      "new tensors, and the values a view that keeps the product: Megatron-LM "
      "core/transformer/attention.py, torchtitan models/llama/model.py";
  return framework;
}

/// PyTorch FSDP (fully sharded data parallel) over transformers with flash attention.
Framework pytorch_fsdp() {
  Framework framework = pytorch_on_gpu();
  framework.name = "pytorch-fsdp";
  framework.fused_bias = true;
  framework.flash_attention = true;
  framework.fp8 = true;
  framework.context_parallel = true;
  framework.stores_dropout_masks = true;
  framework.selective_recompute = false;
  framework.most_sharding_stage = 3;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  framework.sources.kernels =
      "torch.nn.functional.linear adds the bias in the matmul (addmm); GELU and residual add are "
      "kernels of their own; flash attention; fp8: torchao.float8 (torchtitan docs/float8.md), "
      "Transformer Engine in llm-foundry";
  framework.sources.parallelism =
      "Zhao et al. 2023, arXiv 2304.11277: parameters gathered layer by layer with prefetch, "
      "gradients reduce-scattered beside backward; context parallel: "
      "torch.distributed.tensor.experimental.context_parallel, as torchtitan uses it";
  return framework;
}

/// torchtitan without torch.compile: FSDP2, tensor parallelism with sequence parallelism.
Framework torchtitan() {
  Framework framework = pytorch_fsdp();
  framework.name = "torchtitan";
  framework.allocator.expandable_segments = true;
  framework.sources.allocator +=
      "; expandable segments: torchtitan run_train.sh, PYTORCH_CUDA_ALLOC_CONF";
  framework.sequence_parallel = true;
  framework.ops_per_kernel = 2;
  framework.dispatch_gather = Seconds(100e-6);
  framework.sources.kernels =
      "torchtitan models/llama/model.py: no biases, scaled_dot_product_attention; norms, rotary "
      "embedding and SwiGLU op by op";
  framework.sources.parallelism =
      "Liang et al. 2024, arXiv 2410.06511, section 2.1: FSDP2 by layer with prefetch, tensor and "
      "sequence parallelism by DTensor, selective activation checkpoints";
  framework.sources.dispatch =
      framework.sources.dispatch +
      "; about two ops of PyTorch's eager mode for one kernel here, by counting those of a layer; "
      "a "
      "gather of FSDP2 has a copy in, a copy out and its hooks: 100 us assumed, not measured";
  return framework;
}

/// torchtitan with torch.compile for each layer.
Framework torchtitan_compiled() {
  Framework framework = torchtitan();
  framework.name = "torchtitan-compiled";
  framework.ops_per_kernel = 1;
  framework.sources.dispatch =
      "as torchtitan; a compiled layer is a graph of about as many kernels as there are here "
      "(arXiv 2410.06511, section 2.2.2: compiled layer by layer)";
  return framework;
}

}  // namespace plimsoll
