// This file lists the shapes, sizes and payloads of the sweep.
#include "calibrate/schedule/sweep.h"

#include <algorithm>
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

/// Adds a product unless it is there already.
void add_product(std::vector<MatmulPoint>& to, MatmulShape shape, bool transpose_a,
                 bool transpose_b, bool accumulate, bool bias, DType dtype) {
  MatmulPoint point;
  point.shape = shape;
  point.transpose_a = transpose_a;
  point.transpose_b = transpose_b;
  point.accumulate = accumulate;
  point.bias = bias;
  point.dtype = dtype;
  if (std::find(to.begin(), to.end(), point) == to.end()) to.push_back(point);
}

/// Adds a product of f32 on CPU cores unless it is too large.
void add(std::vector<MatmulPoint>& to, MatmulShape shape, bool transpose_a, bool transpose_b,
         bool accumulate, bool bias) {
  if (flops_of(shape) <= kLargest)
    add_product(to, shape, transpose_a, transpose_b, accumulate, bias, DType::f32);
}

/// y [n, out] = x [n, in] w [in, out] and its two gradients.
void add_linear(std::vector<MatmulPoint>& to, std::int64_t n, std::int64_t in, std::int64_t out,
                bool bias) {
  add(to, {1, n, out, in}, false, false, false, bias);
  add(to, {1, n, in, out}, false, true, false, false);
  add(to, {1, in, out, n}, true, false, true, false);
}

/// The products of attention over `heads` heads (times sequences), forward and backward.
void add_attention(std::vector<MatmulPoint>& to, std::int64_t heads, std::int64_t sequence,
                   std::int64_t width) {
  const MatmulShape square{heads, sequence, sequence, width};
  const MatmulShape thin{heads, sequence, width, sequence};
  add(to, square, false, true, false, false);  // scores, and gradient of probabilities
  add(to, thin, false, false, false, false);   // context, and gradient of queries
  add(to, thin, true, false, false, false);    // gradients of keys and values
}

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
  std::vector<MatmulPoint> points;
  const auto add = [&](MatmulShape shape, bool transpose_a, bool transpose_b, bool accumulate,
                       bool bias) {
    add_product(points, shape, transpose_a, transpose_b, accumulate, bias, dtype);
  };
  // y [n, out] = x [n, in] w and its two gradients.
  const auto linear = [&](std::int64_t n, std::int64_t in, std::int64_t out, bool bias) {
    add({1, n, out, in}, false, false, false, bias);
    add({1, n, in, out}, false, true, false, false);
    add({1, in, out, n}, true, false, true, false);
  };
  for (const std::int64_t n : {1024, 4096, 8192, 16384}) {
    for (const std::int64_t h : {1024, 2048, 4096}) {
      linear(n, h, 3 * h, true);
      linear(n, h, h, true);
      linear(n, h, 4 * h, true);
      linear(n, 4 * h, h, true);
    }
    linear(n, 4096, 22016, false);  // gate and up of LLaMA 7B
    linear(n, 11008, 4096, false);
  }
  for (const std::int64_t n : {4096, 8192}) {
    for (const std::int64_t h : {1024, 4096}) linear(n, h, 50304, false);
    linear(n, 2880, 5120, true);  // gpt-oss: a width that tiles of 128 columns do not divide
    linear(n, 4096, 2880, true);
  }
  for (const std::int64_t sequence : {1024, 2048}) {  // attention with scores in memory
    const MatmulShape square{64, sequence, sequence, 64}, thin{64, sequence, 64, sequence};
    add(square, false, true, false, false);
    add(thin, false, false, false, false);
    add(thin, true, false, false, false);
  }
  return points;
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

std::vector<OpPoint> ops_of(SweepSize size, DType dtype) {
  if (size == SweepSize::quick) return memory_sweep(size, dtype);
  std::vector<OpPoint> points;
  for (const OpKind kind : memory_bound_kinds(dtype)) {
    const std::vector<std::int64_t> rows = device_rows(row(kind).rows);
    for (const std::int64_t row : rows) {
      for (const std::int64_t mebibytes : {1, 16, 64, 256}) {
        OpPoint point;
        point.kind = kind;
        point.dtype = dtype;
        point.moved = Bytes(mebibytes * kMiB);
        point.row = row;
        points.push_back(point);
      }
    }
  }
  return points;
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
  std::vector<MatmulPoint> points;
  for (std::int64_t n : tokens) {
    for (std::int64_t h : hidden) {
      add_linear(points, n, h, 3 * h, true);
      add_linear(points, n, h, h, true);
      add_linear(points, n, h, 4 * h, true);
      add_linear(points, n, 4 * h, h, true);
      add_linear(points, n, h, 256, false);
      add_linear(points, n, h, 128, false);  // half the vocabulary on each of two ranks
    }
  }
  for (std::int64_t sequence : quick ? Sizes{32} : Sizes{32, 64, 128, 256, 512}) {
    for (std::int64_t width : quick ? Sizes{16} : Sizes{16, 32, 64, 128}) {
      for (std::int64_t heads : quick ? Sizes{4} : Sizes{2, 8, 48}) {
        add_attention(points, heads, sequence, width);
      }
    }
  }
  for (MatmulPoint& point : points) point.dtype = dtype;
  return points;
}

std::vector<OpPoint> memory_sweep(SweepSize size, DType dtype) {
  const bool quick = size == SweepSize::quick;
  const Sizes sizes =
      quick ? Sizes{kSmallest, kMiB} : Sizes{kSmallest, 128 * kKiB, kMiB, 4 * kMiB, 16 * kMiB};
  std::vector<OpPoint> points;
  for (OpKind kind : memory_bound_kinds(dtype)) {
    Sizes rows = {0};
    // Rows of 1024 floats meet in the same sets of a cache; their neighbours do not.
    if (has_rows(kind)) rows = quick ? Sizes{64} : Sizes{64, 256, 768, 1024, 1280, 1536, 3072};
    if (row(kind).rows == OpRows::scores) rows = quick ? Sizes{32} : Sizes{32, 128, 512};
    Sizes all_sizes = sizes;
    // Ops over whole arenas are as large as the model.
    const bool arena =
        kind == OpKind::adamw || kind == OpKind::squared_norm || kind == OpKind::fill;
    if (arena && !quick) all_sizes.push_back(64 * kMiB), all_sizes.push_back(256 * kMiB);
    for (std::int64_t row : rows) {
      for (std::int64_t bytes : all_sizes) {
        OpPoint point;
        point.kind = kind;
        point.dtype = dtype;
        point.moved = Bytes(bytes);
        point.row = row;
        points.push_back(point);
      }
    }
  }
  return points;
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
