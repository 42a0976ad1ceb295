// Presets of Megatron-LM over the years, and of the fork that trained BigScience's models.
#include "models/framework/framework_families.h"

namespace plimsoll {
namespace {

constexpr const char* kVocabularySource =
    "; vocabulary: Megatron-LM megatron/arguments.py --make-vocab-size-divisible-by, "
    "megatron/tokenizer/tokenizer.py _vocab_size_with_padding";

/// Vocabulary-parallel embedding and loss of Megatron-LM.
void use_megatron_vocabulary(Framework& framework) {
  framework.vocabulary_multiple = 128;
  framework.loss_memory = LossMemory::in_place;
  framework.sources.allocator +=
      "; the loss subtracts, exponentiates, divides and makes its gradient in place: Megatron-LM "
      "core/tensor_parallel/cross_entropy.py (before 2022 mpu/cross_entropy.py)";
}

}  // namespace

/// Megatron-LM as it is run today: Transformer Engine layers (--transformer-impl
/// transformer_engine, the default), distributed optimizer with both overlaps.
Framework megatron_lm() {
  Framework framework = pytorch_on_gpu();
  framework.name = "megatron-lm";
  framework.can = megatron_lm_can();
  use_megatron_vocabulary(framework);
  framework.loss_memory = LossMemory::fused;
  framework.sources.allocator +=
      ", with --cross-entropy-loss-fusion core/fusions/fused_cross_entropy.py, whose compiled "
      "pieces return new tensors";
  framework.copies_rotary = false;
  framework.stands_in_for_gradients = true;
  framework.sources.allocator +=
      ", and get_qkv_layout (pytorch/attention/dot_product_attention/utils.py) copies the values "
      "out of the product beside turned queries and keys, so that nothing keeps it"
      "; tensors in place of gradients: Transformer Engine pytorch/module/base.py get_dummy_wgrad, "
      "whose _dummy_wgrads keep one for each shape, Megatron-LM core/tensor_parallel/layers.py, "
      "LinearWithGradAccumulationAndAsyncCommunication.backward (torch.empty of main_grad's "
      "shape), "
      "core/distributed/distributed_data_parallel.py (main_grad.add_ of what is not fused)";
  // For each of the two handles 32 MiB, and as much for Transformer Engine.
  framework.workspace = 3 * mebibytes(32);
  framework.sources.memory +=
      "; workspace from Hopper on: the same file, and Transformer Engine "
      "pytorch/module/base.py get_cublas_workspace_size_bytes (4 MiB before Hopper)";
  framework.fused_bias_gelu = true;
  framework.fused_bias_add = true;
  framework.fused_bias = true;
  framework.flash_attention = true;
  framework.overlap_tensor_gradients = true;
  framework.overlap_grad_reduce = true;
  framework.overlap_param_gather = true;
  framework.receives_ahead = true;
  framework.sources.kernels =
      "Megatron-LM core/fusions/fused_bias_gelu.py and fused_bias_dropout.py; flash attention and "
      "the bias in the matmul's epilogue: Transformer Engine, "
      "core/extensions/transformer_engine.py "
      "(from memory)";
  framework.sources.parallelism =
      "Megatron-LM core/distributed/distributed_data_parallel_config.py: overlap_grad_reduce, "
      "overlap_param_gather and use_distributed_optimizer, all switched on (their defaults are "
      "off); "
      "core/tensor_parallel/layers.py, and Transformer Engine: input gradients summed over mp "
      "beside "
      "weight gradients; receives of interleaved stages: core/model_parallel_config.py "
      "overlap_p2p_comm, on unless --no-overlap-p2p-communication";
  framework.sources.parallelism += kVocabularySource;
  return framework;
}

/// Megatron-LM with Megatron FSDP, which shards gradients and parameters, too.
Framework megatron_fsdp() {
  Framework framework = megatron_lm();
  framework.name = "megatron-fsdp";
  framework.can = megatron_fsdp_can();
  framework.adds_gradients_in_matmul = false;
  framework.sources.kernels +=
      "; Megatron Core documentation, Megatron FSDP: --no-gradient-accumulation-fusion";
  return framework;
}

/// Megatron-LM of 2021, with which the A100 tables of arXiv 2104.04473 were measured.
Framework megatron_lm_2021() {
  Framework framework = pytorch_on_gpu();
  framework.name = "megatron-lm-2021";
  framework.can = megatron_lm_2021_can();
  use_megatron_vocabulary(framework);
  framework.adds_gradients_in_matmul = false;
  framework.sources.allocator +=
      "; gradients are added to main_grad by hooks: Megatron-LM 2.x model/distributed.py";
  framework.dispatch_op = Seconds(80e-6);
  framework.sources.dispatch =
      "scripts/fit-efficiency on step times of layers too small to keep an A100 busy, "
      "github.com/VIA-Research/vTrain data/ground_truth_single.csv (docs/costs.md): 57 us in the "
      "mean of forward and backward, which is half of forward's; an op here stands for several of "
      "PyTorch and its autograd";
  framework.transfers_hold = TransfersHold::host;
  framework.host_reads_norm = true;
  framework.host_reads_batch = true;
  framework.host_wait = Seconds(100e-6);
  framework.sources.waits =
      "Megatron-LM megatron/p2p_communication.py, _communicate: requests of a batch are waited "
      "for, "
      "then torch.cuda.synchronize; megatron/optimizer: found_inf.item(), clip_grads.py: "
      "total_norm.item(); megatron/mpu/data.py, _build_key_size_numel_dictionaries: "
      "sizes_cuda.cpu(), which every stage's forward step comes to in get_batch; 0.1 ms "
      "until the host goes on: 0.08 to 0.14 by fits to vTrain's runs within a node";
  framework.fused_bias_gelu = true;
  framework.fused_bias_add = true;
  framework.fused_bias = false;
  framework.flash_attention = false;
  framework.sequence_parallel = false;
  framework.overlap_grad_reduce = false;
  framework.overlap_param_gather = false;
  framework.masks_f32_apart = true;
  framework.sources.kernels =
      "scores in f32: Megatron-LM megatron/model/fused_softmax.py, is_kernel_available "
      "(input_in_float16); "
      "Narayanan et al. 2021, arXiv 2104.04473, section 4.2 (fused bias + GELU, bias + dropout + "
      "add, scale + mask + softmax); a bias that no fused kernel takes is output + bias in "
      "Megatron-LM mpu/layers.py (from memory)";
  framework.sources.parallelism =
      "Megatron-LM 2.x: model/distributed.py all-reduces one contiguous buffer after backward "
      "(from "
      "memory)";
  framework.sources.parallelism += kVocabularySource;
  return framework;
}

/// Megatron-LM of 2022: that of 2021 with what arXiv 2205.05198 describes.
Framework megatron_lm_2022() {
  Framework framework = megatron_lm_2021();
  framework.name = "megatron-lm-2022";
  framework.can = megatron_lm_2022_can();
  framework.sequence_parallel = true;
  framework.overlap_tensor_gradients = true;
  framework.sources.parallelism =
      "sequence parallelism: Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2; input "
      "gradients summed over mp, and tokens gathered again, beside "
      "products: the same section 4.2.2, and Megatron-LM 3.0 megatron/mpu/layers.py, unless "
      "--no-async-tensor-model-parallel-allreduce (from memory); reductions and gathers "
      "outside backward and forward (from memory)";
  framework.sources.parallelism += kVocabularySource;
  return framework;
}

/// Megatron-DeepSpeed of BigScience (2021 and 2022): kernels of Megatron-LM, DeepSpeed's pipeline
/// and ZeRO.
Framework megatron_deepspeed() {
  Framework framework = megatron_lm_2021();
  framework.name = "megatron-deepspeed";
  framework.can = megatron_deepspeed_can();
  framework.lazy_optimizer_state = false;
  framework.gradient_memory = GradientMemory::as_computed;
  framework.sources.allocator =
      "PyTorch c10/cuda/CUDACachingAllocator.cpp; DeepSpeed 0.5 "
      "runtime/zero/stage_1_and_2.py: gradients are those of fp16 parameters, flattened and then "
      "copied to f32 by step(), states made by initialize_optimizer_states; loss in place: "
      "Megatron-DeepSpeed megatron/mpu/cross_entropy.py";
  framework.transfers_hold = TransfersHold::compute;
  framework.host_reads_batch = false;
  framework.host_wait = {};
  framework.sources.kernels =
      "github.com/bigscience-workshop/Megatron-DeepSpeed, megatron/fused_kernels and "
      "megatron/model/transformer.py and fused_softmax.py: those of Megatron-LM of 2021 (from "
      "memory)";
  framework.sources.parallelism = "gradients reduced after the last micro-batch (from memory)";
  framework.sources.parallelism += kVocabularySource;
  framework.sources.waits =
      "DeepSpeed runtime/pipe/p2p.py: send and recv are ordered with the kernels of the current "
      "stream; runtime/pipe/schedule.py: only the first and the last stage load batches, which is "
      "not told apart here; runtime/zero and fp16 optimizers read overflow and norm on the host "
      "(from memory)";
  return framework;
}

/// Megatron-LM 1.1.5 in DeepSpeed's pipeline, as DeepSpeed's example of 3D parallelism has it,
/// whose script asks for none of Megatron-LM's fusions. Its softmax, which masks before, is one
/// kernel here.
Framework megatron_deepspeed_2020() {
  Framework framework = megatron_deepspeed();
  framework.name = "megatron-deepspeed-2020";
  framework.can = megatron_deepspeed_2020_can();
  framework.fused_bias_gelu = framework.fused_bias_add = false;
  framework.sources.kernels =
      "DeepSpeedExamples Megatron-LM-v1.1.5-3D_parallelism, megatron/model/transformer.py and "
      "examples/ds_pretrain_gpt2_pipe.sh: no --bias-gelu-fusion, --bias-dropout-fusion";
  return framework;
}

/// Megatron Core in its deterministic mode, as its own tests run it.
Framework megatron_core_deterministic() {
  Framework framework = megatron_lm();
  framework.name = "megatron-core-deterministic";
  framework.loss_memory = LossMemory::in_place;
  framework.flash_attention = false;
  framework.adds_gradients_in_matmul = framework.stands_in_for_gradients = false;
  // :4096:8 for each of the two handles; 4 MiB for Transformer Engine.
  framework.workspace = mebibytes(2 * 32 + 4);
  framework.sources.kernels +=
      "; Megatron-LM tests/functional_tests/test_cases: --attention-backend unfused, "
      "--no-gradient-accumulation-fusion, CUBLAS_WORKSPACE_CONFIG :4096:8";
  return framework;
}

}  // namespace plimsoll
