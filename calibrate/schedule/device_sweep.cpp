// This file lists the shapes and sizes of a device's sweep.
#include "calibrate/schedule/device_sweep.h"

#include <algorithm>

#include "calibrate/schedule/bench_case.h"

namespace plimsoll {
namespace {

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
    MatmulPoint point;
    point.shape = shape;
    point.transpose_a = transpose_a;
    point.transpose_b = transpose_b;
    point.accumulate = accumulate;
    point.bias = bias;
    point.dtype = dtype;
    if (std::ranges::find(points, point) == points.end()) points.push_back(point);
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
