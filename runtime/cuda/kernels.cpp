// The CUDA backend lists its ops and the functions that prepare them.
#include "runtime/cuda/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/kernel_table.h"

namespace plimsoll {

namespace {

constexpr std::array<OpKind, 0> kLacking = {};

constexpr std::array<CudaPrepare, kOpKinds> kPrepare = {{
#define PLIMSOLL_OP(op, ...) has_kernel(OpKind::op, kLacking) ? prepare_##op : nullptr,
#include "graph/ops.def"
}};
#ifndef PLIMSOLL_SANITIZED  // with sanitizers gcc compares no addresses of functions at compile
                            // time
static_assert(covers_ops(kPrepare, kLacking));
#endif

constexpr std::int64_t kWidestNorm = 16384, kWidestUnalignedNorm = 8192;
constexpr std::int64_t kWidestHead = 256;

}  // namespace

CudaPrepare cuda_prepare_function(OpKind kind) { return kPrepare[std::size_t(kind)]; }

Verdict cuda_kernel_limits(const Op& op, std::span<const Tensor> tensors) {
  const auto shape = [&](std::size_t i) -> const Shape& {
    return tensors[op.inputs[i].index()].shape;
  };
  switch (op.kind) {
    case OpKind::layer_norm:
    case OpKind::rms_norm:
    case OpKind::layer_norm_backward:
    case OpKind::rms_norm_backward: {
      const bool backward =
          op.kind == OpKind::layer_norm_backward || op.kind == OpKind::rms_norm_backward;
      const std::size_t weight = backward ? 2 : 1, least = backward ? 4 : 2;
      const bool weighted = op.kind == OpKind::layer_norm ||
                            op.kind == OpKind::layer_norm_backward || op.inputs.size() == least;
      const std::int64_t width = weighted ? elements(shape(weight)) : shape(weight - 1).back();
      const std::int64_t most = width % 8 == 0 ? kWidestNorm : kWidestUnalignedNorm;
      if (width <= most) break;
      return Verdict::no(
          fmt::format("the cuda backend normalizes at most {} columns, not {}", most, width));
    }
    case OpKind::flash_attention:
    case OpKind::flash_attention_backward: {
      const bool backward = op.kind == OpKind::flash_attention_backward;
      const std::size_t first = backward ? 1 : 0;
      const std::size_t operands = op.inputs.size() - (backward ? 3 : 0);
      const Shape& queries = shape(first);
      const std::int64_t value = value_width(operands, queries, shape(first + operands - 1));
      const std::int64_t width = value % 8 != 0 ? value : std::max(queries[3], value);
      if (width % 8 != 0 || width > kWidestHead) {
        return Verdict::no(
            fmt::format("flash attention of the cuda backend has heads of a multiple of 8 up to {} "
                        "elements, not {}",
                        kWidestHead, width));
      }
      if (std::get<AttentionParams>(op.params).dropout > 0)
        return Verdict::no("flash attention of the cuda backend has no dropout");
      break;
    }
    default:
      break;
  }
  return Verdict::yes();
}

std::byte* DeviceScratch::take(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 256;
  const std::int64_t begin = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ > std::int64_t(workspace_.size())) {
    throw EnvironmentError(
        fmt::format("{} needs at least {} bytes of workspace; the framework states {}",
                    to_text(kind_), used_, workspace_.size()));
  }
  return workspace_.data() + begin;
}

}  // namespace plimsoll
