// This file lists the shapes, sizes and payloads of the sweep.
#include "calibrate/schedule/sweep.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "calibrate/schedule/bench_case.h"
#include "runtime/communicator.h"

namespace plimsoll {
namespace {

using Sizes = std::vector<std::int64_t>;
/// Bytes that a memory-bound op moves.
constexpr std::int64_t kSmallest = 16 * kKiB;
/// Larger products run at the rate of smaller ones, and would only take time.
constexpr Flops kLargest{3.5e9};
/// Larger groups of the local communicator are extrapolated.
constexpr std::int64_t kMostRanks = 16;

/// A MatmulList holds products of a type, each once.
struct MatmulList {
  DType dtype;
  Flops largest;  ///< larger products are left out
  std::vector<MatmulPoint> points = {};

  void add(MatmulShape shape, bool transpose_a, bool transpose_b, bool accumulate, bool bias) {
    MatmulPoint point;
    point.shape = shape;
    point.transpose_a = transpose_a;
    point.transpose_b = transpose_b;
    point.accumulate = accumulate;
    point.bias = bias;
    point.dtype = dtype;
    if (flops_of(shape) <= largest &&
        std::find(points.begin(), points.end(), point) == points.end())
      points.push_back(point);
  }
  /// Adds y [n, out] = x [n, in] w [in, out] and its two gradients.
  void add_linear(std::int64_t n, std::int64_t in, std::int64_t out, bool bias) {
    add({1, n, out, in}, false, false, false, bias);
    add({1, n, in, out}, false, true, false, false);
    add({1, in, out, n}, true, false, true, false);
  }
  /// Adds the linear layers of a decoder that is h wide.
  void add_layers(std::int64_t n, std::int64_t h) {
    add_linear(n, h, 3 * h, true);
    add_linear(n, h, h, true);
    add_linear(n, h, 4 * h, true);
    add_linear(n, 4 * h, h, true);
  }
  /// Adds the products of attention over `heads` heads (times sequences), forward and backward.
  void add_attention(std::int64_t heads, std::int64_t sequence, std::int64_t width) {
    const MatmulShape square{heads, sequence, sequence, width};
    const MatmulShape thin{heads, sequence, width, sequence};
    add(square, false, true, false, false);  // scores, and gradient of probabilities
    add(thin, false, false, false, false);   // context, and gradient of queries
    add(thin, true, false, false, false);    // gradients of keys and values
  }
};

/// Sizes of the budget's essential products: tokens of a micro-batch, and hidden sizes, of GPT-2
/// 345M and of 1.3B.
constexpr std::int64_t kTokens = 8192, kHiddens[] = {1024, 2048};
/// Jobs in 16 bits have this product for the peak rate in f32.
constexpr MatmulShape kSinglePeak{1, 4096, 4096, 1024};

/// The points of one type.
std::vector<MatmulPoint> matmuls_of(SweepSize size, DType dtype) {
  if (size == SweepSize::quick) {
    std::vector<MatmulPoint> points = matmul_sweep(size, dtype);
    points.resize(std::min<std::size_t>(points.size(), 6));
    return points;
  }
  MatmulList list{dtype, Flops(INFINITY)};
  for (const std::int64_t n : {1024, 4096, 8192, 16384}) {
    for (const std::int64_t h : {1024, 2048, 4096}) list.add_layers(n, h);
    list.add_linear(n, 4096, 22016, false);  // gate and up of LLaMA 7B
    list.add_linear(n, 11008, 4096, false);
  }
  for (const std::int64_t n : {4096, 8192}) {
    for (const std::int64_t h : {1024, 4096}) list.add_linear(n, h, 50304, false);
    list.add_linear(n, 2880, 5120,
                    true);  // gpt-oss: a width that tiles of 128 columns do not divide
    list.add_linear(n, 4096, 2880, true);
  }
  // Attention with scores in memory.
  for (const std::int64_t sequence : {1024, 2048}) list.add_attention(64, sequence, 64);
  return std::move(list.points);
}

/// Lengths of rows that large models have.
std::vector<std::int64_t> device_rows(OpRows rows) {
  switch (rows) {
    case OpRows::none:
      return {0};
    case OpRows::hidden:
      return {1024, 2048, 4096};
    case OpRows::scores:
      return {1024, 2048};
    case OpRows::logits:
      return {32000, 50304};
  }
  return {0};
}

/// Returns a point for each kind, row and size.
template <class Rows, class Sizes>
std::vector<OpPoint> op_points(DType dtype, Rows rows_of, Sizes sizes_of) {
  std::vector<OpPoint> points;
  for (const OpKind kind : memory_bound_kinds(dtype)) {
    const std::vector<std::int64_t> sizes = sizes_of(kind);
    for (const std::int64_t row : rows_of(kind)) {
      for (const std::int64_t bytes : sizes) points.push_back({kind, dtype, Bytes(bytes), row, {}});
    }
  }
  return points;
}

std::vector<OpPoint> ops_of(SweepSize size, DType dtype) {
  if (size == SweepSize::quick) return memory_sweep(size, dtype);
  return op_points(
      dtype, [](OpKind kind) { return device_rows(row(kind).rows); },
      [](OpKind) {
        return Sizes{kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB};
      });
}

bool is_linear(const MatmulShape& shape, std::int64_t in, std::int64_t out) {
  return shape == MatmulShape{1, kTokens, out, in} || shape == MatmulShape{1, kTokens, in, out} ||
         shape == MatmulShape{1, in, out, kTokens};
}

}  // namespace

Flops flops_of(const MatmulShape& shape) {
  return Flops(2.0 * double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k));
}

std::vector<MatmulPoint> matmul_sweep(SweepSize size, DType dtype) {
  const bool quick = size == SweepSize::quick;
  const Sizes tokens = quick ? Sizes{32, 128} : Sizes{32, 128, 256, 512, 2048};
  const Sizes hidden = quick ? Sizes{64} : Sizes{64, 128, 256, 512, 1024, 2048};
  MatmulList list{dtype, kLargest};
  for (std::int64_t n : tokens) {
    for (std::int64_t h : hidden) {
      list.add_layers(n, h);
      list.add_linear(n, h, 256, false);
      list.add_linear(n, h, 128, false);  // half the vocabulary on each of two ranks
    }
  }
  for (std::int64_t sequence : quick ? Sizes{32} : Sizes{32, 64, 128, 256, 512}) {
    for (std::int64_t width : quick ? Sizes{16} : Sizes{16, 32, 64, 128}) {
      for (std::int64_t heads : quick ? Sizes{4} : Sizes{2, 8, 48})
        list.add_attention(heads, sequence, width);
    }
  }
  return std::move(list.points);
}

std::vector<OpPoint> memory_sweep(SweepSize size, DType dtype) {
  const bool quick = size == SweepSize::quick;
  const auto rows_of = [&](OpKind kind) {
    if (row(kind).rows == OpRows::scores) return quick ? Sizes{32} : Sizes{32, 128, 512};
    // Rows of 1024 floats meet in the same sets of a cache; their neighbours do not.
    if (has_rows(kind)) return quick ? Sizes{64} : Sizes{64, 256, 768, 1024, 1280, 1536, 3072};
    return Sizes{0};
  };
  const auto sizes_of = [&](OpKind kind) {
    if (quick) return Sizes{kSmallest, kMiB};
    Sizes sizes = {kSmallest, 128 * kKiB, kMiB, 4 * kMiB, 16 * kMiB};
    // Ops over whole arenas are as large as the model.
    if (kind == OpKind::adamw || kind == OpKind::squared_norm || kind == OpKind::fill)
      sizes.insert(sizes.end(), {64 * kMiB, 256 * kMiB});
    return sizes;
  };
  return op_points(dtype, rows_of, sizes_of);
}

bool is_essential_on_core(const OpPoint& point) {
  return point.moved == Bytes(kSmallest) || point.moved == Bytes(kMiB);
}

std::vector<std::int64_t> communication_payloads(SweepSize size, CommunicatorKind communicator) {
  if (size == SweepSize::quick) return {kKiB, 64 * kKiB};
  const std::int64_t largest = (communicator == CommunicatorKind::nccl ? 256 : 64) * kMiB;
  Sizes sizes;
  for (std::int64_t bytes = 256; bytes <= largest; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

std::vector<std::int64_t> overlap_payloads(SweepSize size, CommunicatorKind communicator) {
  if (size == SweepSize::quick) return {64 * kKiB};
  if (communicator == CommunicatorKind::nccl) return {64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};
  return {4 * kKiB, 64 * kKiB, kMiB, 8 * kMiB};
}

std::vector<std::size_t> spread_order(std::size_t count) {
  auto stride = std::max<std::size_t>(1, std::size_t(double(count) * 0.618));
  while (std::gcd(stride, count) != 1) ++stride;
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i * stride % count;
  return order;
}

std::vector<CollectivePoint> collective_sweep(SweepSize size) {
  const std::int64_t largest = size == SweepSize::quick ? 64 * kKiB : 64 * kMiB;
  std::vector<CollectivePoint> points;
  const auto add_sizes = [&](OpKind kind, std::int64_t ranks) {
    for (std::int64_t bytes = 256; bytes <= largest;) {
      CollectivePoint point;
      point.kind = kind;
      point.ranks = ranks;
      point.payload = Bytes(bytes);
      points.push_back(point);
      // Closer where the operands leave one cache after the other.
      bytes *= bytes >= 64 * kKiB && bytes < 16 * kMiB && size != SweepSize::quick ? 2 : 4;
    }
  };
  // More ranks than cores take turns: no basis for predictions, but four are a common request.
  Sizes group_sizes = {2, 4};
  for (std::int64_t ranks = 8; ranks <= std::min(kMostRanks, available_cores()); ranks *= 2) {
    group_sizes.push_back(ranks);
  }
  for (std::int64_t ranks : group_sizes) {
    for (OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather}) {
      add_sizes(kind, ranks);
    }
  }
  add_sizes(OpKind::send, 2);
  return points;
}

std::vector<MatmulPoint> device_matmul_sweep(SweepSize size, DType precision) {
  std::vector<MatmulPoint> points = matmuls_of(size, precision);
  if (precision != DType::f32) {
    MatmulPoint single;
    single.shape = size == SweepSize::quick ? points.front().shape : kSinglePeak;
    points.push_back(single);
  }
  return points;
}

std::vector<OpPoint> device_memory_sweep(SweepSize size, DType precision) {
  std::vector<OpPoint> points = ops_of(size, precision);
  if (precision == DType::f32) return points;
  const std::vector<OpKind> kinds = memory_bound_kinds(precision);
  for (const OpPoint& point : ops_of(size, DType::f32)) {
    const bool in_f32 = std::ranges::find(kinds, point.kind) == kinds.end();
    if (in_f32 || point.kind == OpKind::add) points.push_back(point);
  }
  return points;
}

std::vector<CopyPoint> copy_sweep(SweepSize size) {
  std::vector<CopyPoint> points;
  for (const CopyDirection direction :
       {CopyDirection::to_device, CopyDirection::to_host, CopyDirection::on_device}) {
    for (const std::int64_t bytes : {kMiB, 64 * kMiB}) {
      if (size == SweepSize::quick && bytes > kMiB) continue;
      CopyPoint& point = points.emplace_back();
      point.direction = direction;
      point.pinned = direction == CopyDirection::on_device;
      point.size = Bytes(bytes);
    }
  }
  return points;
}

bool is_essential_on_device(const MatmulPoint& point) {
  if (point.shape == kSinglePeak && point.dtype == DType::f32) return true;
  return std::ranges::any_of(kHiddens, [&](std::int64_t h) {
    const MatmulShape& shape = point.shape;
    return is_linear(shape, h, 3 * h) || is_linear(shape, h, h) || is_linear(shape, h, 4 * h) ||
           is_linear(shape, 4 * h, h);
  });
}

bool is_essential_on_device(const OpPoint& point) {
  return point.kind == OpKind::add && point.dtype == DType::f32;
}

}  // namespace plimsoll
