// Presets of PyTorch and of what is built on it beside Megatron-LM.
#include "models/framework/framework_families.h"

namespace plimsoll {

/// What PyTorch on an NVIDIA GPU has in common over the years.
Framework pytorch_on_gpu() {
  Framework framework;
  framework.recompute_repeats_all = true;  // core/tensor_parallel/random.py: CheckpointFunction
  framework.stores_dropout_masks = true;   // torch.native_dropout, and arXiv 2205.05198 section 4.1
  framework.dispatch_op = Seconds(8e-6);
  framework.backward_dispatch = 0.5;
  framework.sources.dispatch =
      "lower end of the 8 to 15 us per op that removing cast ops saved on hosts of V100 GPUs "
      "(Paddle "
      "static graph executor); not measured for PyTorch, whose eager dispatch is of that order; "
      "half of it in backward, which autograd's engine calls from C++ "
      "(torch/csrc/autograd/engine.cpp): "
      "0.39 to 0.48 by fits to vTrain's runs within a node (docs/accuracy.md)";
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

namespace {

/// What transformers with flash attention have in common under PyTorch's fully sharded data
/// parallelism.
Framework fully_sharded() {
  Framework framework = pytorch_on_gpu();
  framework.recompute_repeats_all = false;
  framework.fused_bias = true;
  framework.flash_attention = true;
  framework.stores_dropout_masks = true;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  framework.sources.kernels =
      "torch.nn.functional.linear adds the bias in the matmul (addmm); GELU and residual add are "
      "kernels of their own; flash attention";
  framework.sources.parallelism =
      "Zhao et al. 2023, arXiv 2304.11277: parameters gathered layer by layer with prefetch, "
      "gradients reduce-scattered beside backward; non-reentrant checkpoints, which stop where all "
      "that backward reads is there (torch/utils/checkpoint.py, early_stop, on since PyTorch 2.1)";
  return framework;
}

}  // namespace

/// PyTorch FSDP (fully sharded data parallel) over transformers with flash attention.
Framework pytorch_fsdp() {
  Framework framework = fully_sharded();
  framework.name = "pytorch-fsdp";
  framework.can = pytorch_fsdp_can();
  framework.loss_memory = LossMemory::own_type;
  framework.sources.allocator +=
      "; loss: llm-foundry llmfoundry/models/mpt/modeling_mpt.py, loss_fn fused_crossentropy by "
      "default, which is flash_attn/losses/cross_entropy.py: its kernels read 16-bit logits and "
      "write a gradient of their type (from memory)";
  return framework;
}

/// torchtitan without torch.compile: FSDP2, tensor parallelism with sequence parallelism.
Framework torchtitan() {
  Framework framework = fully_sharded();
  framework.name = "torchtitan";
  framework.can = torchtitan_can();
  framework.allocator.expandable_segments = true;
  framework.keeps_unread = true;    // torch/utils/checkpoint.py, _CachingTorchDispatchMode
  framework.copies_rotary = false;  // of linear layers of their own no product stays beside them
  framework.loss_memory = LossMemory::by_op;
  framework.shard_memory = ShardMemory::flat_copies;
  framework.border_memory = BorderMemory::for_each;
  framework.gathers_tokens_again = false;
  framework.sources.allocator +=
      "; expandable segments: torchtitan run_train.sh, PYTORCH_CUDA_ALLOC_CONF; sharding: pytorch "
      "1963fc8 (2024-12-23, as torchtitan benchmarks/llama3_h100_202412_torchtitan.md says) "
      "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, _fsdp_param_group.py, "
      "_fsdp_param.py; pipelines: torch/distributed/pipelining/stage.py (PipelineStage, "
      "args_recv_info, grad_recv_info, output_chunks; all stages keep outputs until pull request "
      "153383)";
  framework.sequence_parallel = true;
  framework.ops_per_kernel = 2;
  framework.elementwise_by_op = true;
  framework.dispatch_gather = Seconds(100e-6);
  framework.sources.kernels =
      "torchtitan models/llama/model.py: no biases, scaled_dot_product_attention; norms, rotary "
      "embedding and SwiGLU op by op";
  framework.sources.parallelism =
      "Liang et al. 2024, arXiv 2410.06511, section 2.1: FSDP2 by layer with prefetch, tensor and "
      "sequence parallelism by DTensor; torchtitan parallelisms/parallelize_llama.py: selective "
      "activation checkpoints that save attention, what is scattered and every second mm; "
      "checkpoints stop where all that backward reads is there (torch.utils.checkpoint, "
      "early_stop); what DTensor gathers is an operand that autograd keeps";
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
  framework.keeps_unread = false;
  framework.elementwise_by_op = false;
  framework.ops_per_kernel = 1;
  framework.sources.dispatch =
      "as torchtitan; a compiled layer is a graph of about as many kernels as there are here "
      "(arXiv 2410.06511, section 2.2.2: compiled layer by layer)";
  return framework;
}

/// torchtitan, compiled, with its asynchronous tensor parallelism.
Framework torchtitan_async_tp() {
  Framework framework = torchtitan_compiled();
  framework.name = "torchtitan-async-tp";
  framework.async_tensor_parallel = true;
  framework.sources.parallelism +=
      "; --experimental.enable_async_tensor_parallel: torch/_inductor/fx_passes/"
      "micro_pipeline_tp.py and torch/distributed/_symmetric_memory: gathers and scatters over the "
      "tensor ranks are cut in as many parts as there are ranks, copied beside the products";
  return framework;
}

/// PyTorch as its models were written before fused kernels, with torch.autocast or apex amp O1, on
/// one GPU or with DistributedDataParallel.
Framework pytorch_autocast() {
  Framework framework = pytorch_on_gpu();
  framework.name = "pytorch-autocast";
  framework.can = pytorch_autocast_can();
  framework.fused_bias = true;
  framework.sequence_parallel = false;
  framework.adds_gradients_in_matmul = false;
  framework.elementwise_by_op = true;
  framework.ops_per_kernel = 2;
  framework.loss_memory = LossMemory::by_op;
  framework.sources.kernels =
      "github.com/NVIDIA/DeepLearningExamples PyTorch/LanguageModeling/BERT/modeling.py (2019) and "
      "huggingface transformers 2: GELU as x 0.5 (1 + erf(x / sqrt 2)), BertLayerNorm by ops; "
      "softmax and norms in f32: torch.autocast op reference, apex/amp/lists";
  framework.sources.parallelism =
      "torch.nn.parallel.DistributedDataParallel: gradients reduced in buckets beside backward";
  framework.sources.dispatch += "; about two ops for one kernel here, as in torchtitan";
  framework.sources.allocator +=
      "; a gradient of a second micro-batch is added to the first: torch/csrc/autograd/functions/"
      "accumulate_grad.h";
  return framework;
}

}  // namespace plimsoll
