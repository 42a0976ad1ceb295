// Framework presets: how each executor runs ops, with the source of every number.
#include "models/framework.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Megatron-LM on PyTorch, as far as lowering distinguishes frameworks so far.
Framework megatron_lm() {
  return {
      .name = "megatron-lm",
      // LinearWithGradAccumulationAndAsyncCommunication: matmul, then output = output + bias.
      .fused_bias = false,
      // PyTorch's cuBLAS workspace before Hopper, ":4096:2:16:8" = 2 * 4096 KiB + 8 * 16 KiB.
      .workspace = Bytes(std::int64_t{2 * 4096 + 8 * 16} << 10),
      .source =
          "Megatron-LM core/tensor_parallel/layers.py; PyTorch 2 "
          "aten/src/ATen/cuda/CublasHandlePool.cpp",
  };
}

}  // namespace

Framework bundled_framework() {
  return {
      .name = "bundled",
      .fused_bias = true,
      // oneDNN 2.6 brgemm scratch of weight gradients stops growing at 1681 KiB (hidden 64 to 1024,
      // 32 to 8192 tokens); Backend::prepare refuses an op that needs more.
      .workspace = Bytes(std::int64_t{2} << 20),
      .source = "runtime/cpu: oneDNN matmul with bias, user scratchpad",
  };
}

Framework framework_by_name(std::string_view name) {
  std::string known;
  for (const Framework& framework : {bundled_framework(), megatron_lm()}) {
    if (framework.name == name) return framework;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", framework.name);
  }
  throw UsageError(fmt::format("no framework is called \"{}\"; known: {}", name, known));
}

}  // namespace plimsoll
