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
      .name = "plimsoll",
      .fused_bias = true,
      // A choice, not a measurement: every kernel's scratch must fit in it, and a backend refuses
      // the op whose kernel needs more (Backend::supports).
      .workspace = Bytes(std::int64_t{1} << 20),
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
