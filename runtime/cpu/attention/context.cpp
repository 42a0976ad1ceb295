// Values of two operands are put side by side, or taken apart again. Where ranks share sequences,
// heads are exchanged, and attention over different keys is merged.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/attention_layout.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// Two parts lie side by side in so many rows of a whole, each with so many bytes of a row.
struct PartRows {
  std::int64_t rows;
  std::size_t first, second;
  PartRows(std::int64_t rows_of_whole, const Tensor& a, const Tensor& b)
      : rows(rows_of_whole),
        first(std::size_t(bytes_of(a).count() / rows)),
        second(std::size_t(bytes_of(b).count() / rows)) {}
};

/// [n,p,a,d] and [ranks,n,p,a/ranks,d]: so many runs of heads of one rank, which have so many
/// bytes.
struct GroupedHeads {
  std::int64_t ranks, rows;
  std::size_t bytes;
  GroupedHeads(const Tensor& plain, const Tensor& grouped)
      : ranks(grouped.shape[0] / plain.shape[0]),
        rows(plain.shape[0] * (plain.shape.size() == 4 ? plain.shape[1] : 1)),
        bytes(std::size_t(bytes_of(plain).count() / (ranks * rows))) {}
  /// visit(offset in the plain tensor, offset in the grouped one)
  template <class Visit>
  void each(Visit visit) const {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (std::int64_t row = 0; row < rows; ++row)
        visit(std::size_t(row * ranks + rank) * bytes, std::size_t(rank * rows + row) * bytes);
    }
  }
};

PLIMSOLL_VECTORIZE void blend(const float* a, float of_a, const float* b, float of_b, float* y,
                              std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = of_a * a[i] + of_b * b[i];
}

}  // namespace

namespace {

KernelPointer prepare_split(const PartRows& parts) {
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::size_t i = 0; i < std::size_t(parts.rows); ++i) {
      const std::byte* const whole = in[0] + i * (parts.first + parts.second);
      std::memcpy(out[0] + i * parts.first, whole, parts.first);
      std::memcpy(out[1] + i * parts.second, whole + parts.first, parts.second);
    }
  });
}

KernelPointer prepare_join(const PartRows& parts) {
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::size_t i = 0; i < std::size_t(parts.rows); ++i) {
      std::byte* const whole = out[0] + i * (parts.first + parts.second);
      std::memcpy(whole, in[0] + i * parts.first, parts.first);
      std::memcpy(whole + parts.first, in[1] + i * parts.second, parts.second);
    }
  });
}

}  // namespace

KernelPointer prepare_split_parts(const KernelRequest& request) {
  return prepare_split(
      {rows_of_parts(request.input(0), request.output(0)), request.output(0), request.output(1)});
}

KernelPointer prepare_join_parts(const KernelRequest& request) {
  return prepare_join(
      {rows_of_parts(request.output(0), request.input(0)), request.input(0), request.input(1)});
}

// The second part has a row for each token.
KernelPointer prepare_part_tokens(const KernelRequest& request) {
  return prepare_split({request.output(1).shape[0], request.output(0), request.output(1)});
}

KernelPointer prepare_join_tokens(const KernelRequest& request) {
  return prepare_join({request.input(1).shape[0], request.input(0), request.input(1)});
}

/// A rank keeps its rows of a tensor that every rank of its group holds whole.
KernelPointer prepare_own_part(const KernelRequest& request) {
  const Tensor& part = request.output(0);
  const auto bytes = std::size_t(bytes_of(part).count());
  const std::size_t begin = bytes * std::size_t(part_index(*part.split, request.context.at));
  return make_kernel([bytes, begin](Addresses in, Addresses out, const RunPosition&) {
    std::memcpy(out[0], in[0] + begin, bytes);
  });
}

KernelPointer prepare_group_heads(const KernelRequest& request) {
  const GroupedHeads heads(request.input(0), request.output(0));
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    heads.each([&](std::size_t plain, std::size_t grouped) {
      std::memcpy(out[0] + grouped, in[0] + plain, heads.bytes);
    });
  });
}

KernelPointer prepare_ungroup_heads(const KernelRequest& request) {
  const GroupedHeads heads(request.output(0), request.input(0));
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    heads.each([&](std::size_t plain, std::size_t grouped) {
      std::memcpy(out[0] + plain, in[0] + grouped, heads.bytes);
    });
  });
}

/// Each part weighs as much as its sum of exponentials. A part whose keys a query does not see has
/// minus infinity for it, and weighs nothing.
KernelPointer prepare_merge_attention(const KernelRequest& request) {
  const Shape& sums = request.input(1).shape;  // [b,a,s], or grouped as [b,kv,g*s]
  const Shape& y = request.input(0).shape;     // [n,a*d]
  const std::int64_t batch = sums[0], tokens = y[0] / batch;
  const std::int64_t heads = sums[1] * sums[2] / tokens, depth = y[1] / heads;
  Scratch scratch(request);
  const RowBlocks rows{y[0], y[1], 1};
  const Rows a(request.input(0), rows, scratch), b(request.input(2), rows, scratch);
  const Rows merged(request.output(0), rows, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const float *const of_a = floats(in, 1), *const of_b = floats(in, 3);
    float* const total = floats_out(out, 1);
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const float *const from = a.read(in[0], row, 1), *const other = b.read(in[2], row, 1);
      float* const to = merged.target(out[0], row);
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t at = (row / tokens * heads + head) * tokens + row % tokens;
        const float most = std::max(of_a[at], of_b[at]);
        const float base = std::isinf(most) ? 0 : most;
        const float ea = std::exp(of_a[at] - base), eb = std::exp(of_b[at] - base);
        const float sum = ea + eb, share = sum > 0 ? 1 / sum : 0;
        blend(from + head * depth, ea * share, other + head * depth, eb * share, to + head * depth,
              depth);
        total[at] = base + std::log(sum);
      }
      merged.store(out[0], row, 1);
    }
  });
}

}  // namespace plimsoll
