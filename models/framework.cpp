// Framework presets: how each executor runs ops, with the source of every number.
#include "models/framework.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr Bytes mebibytes(std::int64_t count) { return Bytes(count << 20); }

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
  // cuBLAS workspace before Hopper, ":4096:2:16:8" = 2 * 4096 KiB + 8 * 16 KiB.
  framework.workspace = Bytes(std::int64_t{2 * 4096 + 8 * 16} << 10);
  framework.context_memory = mebibytes(450);
  framework.pair_communicator_memory = mebibytes(544);
  framework.communicator_memory = mebibytes(688);
  framework.sources.memory =
      "workspace: PyTorch 2 aten/src/ATen/cuda/CublasHandlePool.cpp; communicators: NCCL issue "
      "964, "
      "2023-08-16, 4 A100 with NVLink; context: CUDA 11 on A100, from memory, no document";
  return framework;
}

/// Megatron-LM as it is run today: Transformer Engine layers (--transformer-impl
/// transformer_engine, the default), distributed optimizer with both overlaps.
Framework megatron_lm() {
  Framework framework = pytorch_on_gpu();
  framework.name = "megatron-lm";
  framework.fused_bias_gelu = true;
  framework.fused_bias_add = true;
  framework.fused_bias = true;
  framework.flash_attention = true;
  framework.selective_recompute = true;
  framework.most_sharding_stage = 1;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  framework.sources.kernels =
      "Megatron-LM core/fusions/fused_bias_gelu.py and fused_bias_dropout.py; flash attention and "
      "the bias in the matmul's epilogue: Transformer Engine, "
      "core/extensions/transformer_engine.py "
      "(from memory)";
  framework.sources.parallelism =
      "Megatron-LM core/distributed/distributed_data_parallel_config.py: overlap_grad_reduce, "
      "overlap_param_gather and use_distributed_optimizer, all switched on (their defaults are "
      "off); that optimizer shards states, gradients and parameters stay whole: "
      "core/optimizer/distrib_optimizer.py";
  return framework;
}

/// Megatron-LM of 2021, with which the A100 tables of arXiv 2104.04473 were measured.
Framework megatron_lm_2021() {
  Framework framework = pytorch_on_gpu();
  framework.name = "megatron-lm-2021";
  framework.dispatch_op = Seconds(57e-6);
  framework.sources.dispatch =
      "scripts/fit-efficiency on step times of layers too small to keep an A100 busy, "
      "github.com/VIA-Research/vTrain data/ground_truth_single.csv (docs/costs.md); an op here "
      "stands for several of PyTorch and its autograd";
  framework.fused_bias_gelu = true;
  framework.fused_bias_add = true;
  framework.fused_bias = false;
  framework.flash_attention = false;
  framework.sequence_parallel = false;
  framework.selective_recompute = false;
  framework.most_sharding_stage = 0;
  framework.overlap_grad_reduce = false;
  framework.overlap_param_gather = false;
  framework.sources.kernels =
      "Narayanan et al. 2021, arXiv 2104.04473, section 4.2 (fused bias + GELU, bias + dropout + "
      "add, scale + mask + softmax); a bias that no fused kernel takes is output + bias in "
      "Megatron-LM mpu/layers.py (from memory)";
  framework.sources.parallelism =
      "Megatron-LM 2.x: model/distributed.py all-reduces one contiguous buffer after backward; no "
      "distributed optimizer, activation checkpoints of whole layers (from memory)";
  return framework;
}

/// Megatron-LM of 2022: that of 2021 with what arXiv 2205.05198 describes.
Framework megatron_lm_2022() {
  Framework framework = megatron_lm_2021();
  framework.name = "megatron-lm-2022";
  framework.sequence_parallel = true;
  framework.selective_recompute = true;
  framework.most_sharding_stage = 1;
  framework.sources.parallelism =
      "sequence parallelism and selective recompute: Korthikanti et al. 2022, arXiv 2205.05198, "
      "sections 4.2.2 and 5; distributed "
      "optimizer: Megatron-LM 3.0, optimizer/distrib_optimizer.py, 2022; reductions and gathers "
      "outside backward and forward (from memory)";
  return framework;
}

/// PyTorch FSDP (fully sharded data parallel) over transformers with flash attention.
Framework pytorch_fsdp() {
  Framework framework = pytorch_on_gpu();
  framework.name = "pytorch-fsdp";
  framework.fused_bias = true;
  framework.flash_attention = true;
  framework.stores_dropout_masks = true;
  framework.selective_recompute = false;
  framework.most_sharding_stage = 3;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  framework.sources.kernels =
      "torch.nn.functional.linear adds the bias in the matmul (addmm); GELU and residual add are "
      "kernels of their own; flash attention";
  framework.sources.parallelism =
      "Zhao et al. 2023, arXiv 2304.11277: parameters gathered layer by layer with prefetch, "
      "gradients reduce-scattered beside backward";
  return framework;
}

}  // namespace

Framework bundled_framework() {
  Framework framework;
  framework.name = "bundled";
  framework.zero_bubble = true;
  framework.fused_bias = true;
  framework.selective_recompute = true;
  framework.most_sharding_stage = 3;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  // One oneDNN primitive execution takes 0.26 us, plus the walk to it.
  framework.dispatch_op = Seconds(0.3e-6);
  // oneDNN 2.6 brgemm scratch of weight gradients stops growing at 1681 KiB (hidden 64 to 1024,
  // 32 to 8192 tokens); Backend::prepare refuses an op that needs more.
  framework.workspace = mebibytes(2);
  framework.sources = {
      .kernels = "runtime/cpu: oneDNN matmul with bias; one kernel per op",
      .parallelism = "passes and runtime/executor.cpp",
      .dispatch = "measured on an AVX-512 host; a calibration measures it anew",
      .memory = "runtime/cpu: oneDNN user scratchpad; the local communicator copies between arenas",
  };
  return framework;
}

Framework bundled_cuda_framework() {
  Framework framework = bundled_framework();
  framework.name = "bundled-cuda";
  framework.flash_attention = true;
  framework.selective_recompute = false;  // there are no scores to repeat
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
      .memory =
          "workspace: cuBLAS manual, cublasSetWorkspace, Hopper; communicators and context: " +
          nccl.sources.memory,
  };
  return framework;
}

bool runs_here(const Framework& framework) {
  return framework.name == bundled_framework().name ||
         framework.name == bundled_cuda_framework().name;
}

std::vector<Framework> framework_presets() {
  return {bundled_framework(), bundled_cuda_framework(), megatron_lm(),
          megatron_lm_2022(),  megatron_lm_2021(),       pytorch_fsdp()};
}

Framework framework_by_name(std::string_view name) {
  std::string known;
  for (const Framework& framework : framework_presets()) {
    if (framework.name == name) return framework;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", framework.name);
  }
  throw UsageError(fmt::format("no framework is called \"{}\"; known: {}", name, known));
}

}  // namespace plimsoll
