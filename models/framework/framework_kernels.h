// FrameworkKernels are the kernels that a framework runs for the ops of a model.
#pragma once

#include <cstdint>

namespace plimsoll {

/// An AttentionKernel is a release of flash attention. The rates of cluster files are those of
/// kernels that use all that the GPU has.
enum class AttentionKernel : std::uint8_t {
  native,   ///< cuDNN or FlashAttention-3 on Hopper, the newest kernel elsewhere
  flash_2,  ///< FlashAttention-2, which PyTorch's scaled_dot_product_attention contains
  flash_1,  ///< FlashAttention of 2022
  triton,   ///< the same of 2022, written in Triton
};

/// BiasKernels are the kernels that may add a linear layer's bias: the first of these that applies,
/// else a kernel for the bias alone. They do not exclude each other: a layer has at most one of the
/// two readers.
struct BiasKernels {
  bool in_gelu = false;   ///< the GELU after the layer adds it, forward and backward
  bool in_add = false;    ///< the residual add after the layer adds it
  bool in_matmul = true;  ///< the layer's matmul adds it
  bool operator==(const BiasKernels&) const = default;
};

/// `separate_qkv` and `masks_f32_apart` only matter without flash attention.
struct AttentionKernels {
  /// Attention is one kernel that keeps no scores (Dao 2022, arXiv 2205.14135). Without it,
  /// attention is matmul, softmax and matmul.
  bool flash = false;
  AttentionKernel kernel = AttentionKernel::native;  ///< that kernel
  /// Attention over parts of sequences that ranks share (Strategy::cp) is such a kernel, too.
  /// Without it, it is where `flash` is.
  bool by_parts = false;
  /// Query, key and value come from three linear layers, where the job has one for all three and no
  /// rotary embedding.
  bool separate_qkv = false;
  /// A separate kernel masks f32 scores before their softmax; the softmax masks 16-bit scores
  /// itself.
  bool masks_f32_apart = false;
  /// Keys and values of groups of queries are repeated for each query head before attention. With
  /// parallelism.sums_parts_in_f32 that is before ranks exchange them (Strategy::cp). Backward
  /// reads them so.
  bool repeats_keys = false;
  bool operator==(const AttentionKernels&) const = default;
};

struct ElementwiseKernels {
  /// GELU without a fused bias, SwiGLU and norms are formulas of several ops, and norms and softmax
  /// compute in f32. Each op keeps the values that its backward reads. Rotary embeddings are
  /// several ops, too.
  bool by_op = false;
  bool fused_norms =
      false;  ///< with by_op, a norm is still one kernel (apex, flash_attn's rms_norm)
  /// With by_op, scale, mask and softmax of scores are still one kernel in 16 bits (Megatron-LM's
  /// megatron/fused_kernels).
  bool fused_softmax = false;
  bool operator==(const ElementwiseKernels&) const = default;
};

struct ProductKernels {
  /// Products of f32 operands round them to TF32 where the device can (NVIDIA's PyTorch containers,
  /// torch.backends.cuda.matmul.allow_tf32).
  bool tf32 = false;
  /// Forward keeps the inputs of 8-bit products uncast, and backward casts them again (torchao).
  /// Without it they are kept in 8 bits (Transformer Engine). It only matters with scales of
  /// blocks, which both have; the other recipes are of one of them.
  bool casts_inputs_again = false;
  /// Products read 8-bit operands with one scale for a tensor as they lie. Without it they need the
  /// inner dimension of both to be contiguous, so that copies are transposed. Devices that multiply
  /// so set it (GpuGeneration::untransposed_fp8).
  bool untransposed_fp8 = false;
  /// The rows of each expert are multiplied by a kernel for this expert. Without it one kernel
  /// multiplies the rows of all experts.
  bool experts_apart = false;
  /// A matmul adds to the gradient of its weight (apex fused_weight_gradient_mlp_cuda). Without it,
  /// each gradient of a micro-batch is a tensor until another kernel has added it.
  bool add_gradients = true;
  bool operator==(const ProductKernels&) const = default;
};

/// Every framework here runs layer norm and the masked softmax of 16 bits as one kernel each (the
/// score matmul has the scale). So there is no field for these.
struct FrameworkKernels {
  BiasKernels bias;
  AttentionKernels attention;
  ElementwiseKernels elementwise;
  ProductKernels products;
  /// One kernel sums the squares of a tensor. Without it there are two, with the squares in memory
  /// between them.
  bool squared_norm = true;
  /// Dropout writes a mask of one byte per element, which backward reads (arXiv 2205.05198, section
  /// 4.1). Without it backward draws the mask again. Flash attention always draws its mask again.
  bool stores_dropout_masks = false;
  bool operator==(const FrameworkKernels&) const = default;
};

}  // namespace plimsoll
