// The sweep covers training's ops, and every case is one that the backend runs and the cost model
// finds.
#include "calibrate/schedule/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "calibrate/measure/core_bench.h"
#include "calibrate/schedule/bench_case.h"
#include "runtime/backend.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {
namespace {

Cluster cluster() {
  Cluster result;
  result.device.kind = DeviceKind::cpu_core;
  result.device.memory_bandwidth = BytesPerSecond(10e9);
  result.device.peak_fp32 = FlopsPerSecond(100e9);
  return result;
}

const Sample kSample{Seconds(1e-3), Seconds(1e-5), 7, false};

TEST(Sweep, EveryMemoryBoundKindIsMeasuredOnceThere) {
  for (const SweepSize size : {SweepSize::full, SweepSize::quick}) {
    std::set<OpKind> kinds;
    for (const OpPoint& point : memory_sweep(size)) kinds.insert(point.kind);
    const auto wanted = memory_bound_kinds();
    EXPECT_EQ(kinds, std::set<OpKind>(wanted.begin(), wanted.end()));
  }
}

TEST(Sweep, MemoryCasesMoveAboutWhatIsAskedFor) {
  for (const OpPoint& point : memory_sweep(SweepSize::full)) {
    if (point.moved < Bytes(1 << 20)) continue;  // below, sequences and tables are coarse
    const BenchCase bench = memory_case(point.kind, point.moved, point.row);
    const Bytes moved = bytes_moved(bench.op, bench.tensors);
    if (moved < Bytes(1 << 10)) continue;  // of a fixed size: begin_step, clip_factor
    const double ratio = double(moved.count()) / double(point.moved.count());
    EXPECT_GT(ratio, 0.6) << to_text(point.kind) << " row " << point.row;
    // One softmax matrix of 512 x 512 is 1 MiB, three times.
    EXPECT_LT(ratio, 3.1) << to_text(point.kind) << " row " << point.row;
  }
}

TEST(Sweep, ACaseThatIsAskedForByItsOwnBytesIsTheSame) {
  // The second pass of a calibration measures points again by the bytes that the first pass noted.
  for (const SweepSize size : {SweepSize::quick, SweepSize::full}) {
    for (const OpPoint& point : memory_sweep(size)) {
      const BenchCase first = memory_case(point.kind, point.moved, point.row, point.dtype);
      const Bytes moved = bytes_moved(first.op, first.tensors);
      const DType dtype = compute_dtype(first.op, first.tensors);
      const BenchCase again = memory_case(point.kind, moved, first.row, dtype);
      EXPECT_EQ(bytes_moved(again.op, again.tensors), moved)
          << to_text(point.kind) << " row " << point.row << " of " << point.moved.count()
          << " bytes";
    }
  }
}

/// Returns whether an op writes anything in one run of `bench` on operands as they are timed.
bool writes_something(Backend& backend, const BenchCase& bench) {
  RankContext context;
  context.program = &bench.program;
  const auto kernel = backend.prepare(bench.op, bench.tensors, context);
  std::vector<std::vector<std::byte>> memory;
  for (const Tensor& tensor : bench.tensors) {
    memory.emplace_back(std::size_t(bytes_of(tensor).count()));
    fill_operand(tensor, bench.ids, memory.back().data());
  }
  const auto before = memory;
  std::vector<std::byte*> inputs, outputs;
  for (TensorId id : bench.op.inputs) inputs.push_back(memory[id.index()].data());
  for (TensorId id : bench.op.outputs) outputs.push_back(memory[id.index()].data());
  kernel->run(inputs, outputs, RunPosition{});
  return memory != before;
}

TEST(Sweep, UpdatesAreTimedAtWork) {
  const auto backend = make_backend("cpu");
  for (OpKind kind : {OpKind::adamw, OpKind::sgd, OpKind::lamb_norms, OpKind::lamb}) {
    EXPECT_TRUE(writes_something(*backend, memory_case(kind, Bytes(1 << 16), 0))) << to_text(kind);
  }
}

TEST(Sweep, EveryCaseIsLegalAndSupportedInItsType) {
  const auto backend = make_backend("cpu");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const OpPoint& point : memory_sweep(SweepSize::full, dtype)) {
      const BenchCase bench = memory_case(point.kind, point.moved, point.row, point.dtype);
      const Verdict verdict = backend->supports(bench.op, bench.tensors);
      EXPECT_TRUE(bool(verdict)) << to_text(point.kind) << ": " << verdict.reason();
      if (dtype != DType::f32) {
        EXPECT_EQ(compute_dtype(bench.op, bench.tensors), dtype) << to_text(point.kind);
      }
    }
    for (const MatmulPoint& point : matmul_sweep(SweepSize::full, dtype)) {
      const BenchCase bench = matmul_case(point.shape, point);
      const Verdict verdict = backend->supports(bench.op, bench.tensors);
      EXPECT_TRUE(bool(verdict)) << verdict.reason();
      EXPECT_EQ(matmul_shape(bench.op, bench.tensors), point.shape);
      EXPECT_EQ(compute_dtype(bench.op, bench.tensors), dtype);
    }
  }
}

TEST(Sweep, TheCostModelFindsWhatWasMeasured) {
  // The measured rows and dtypes are those the cost model looks for.
  for (OpPoint point : memory_sweep(SweepSize::full)) {
    const BenchCase bench = memory_case(point.kind, point.moved, point.row);
    point.moved = bytes_moved(bench.op, bench.tensors);
    point.row = bench.row;
    point.dtype = compute_dtype(bench.op, bench.tensors);
    point.time = kSample;
    Calibration calibration;
    calibration.ops = {point};
    const CostModel costs(cluster(), calibration, Framework{});
    EXPECT_EQ(costs.local(bench.op, bench.tensors).provenance, Provenance::measured)
        << to_text(point.kind) << " row " << point.row;
  }
  for (MatmulPoint point : matmul_sweep(SweepSize::quick)) {
    const BenchCase bench = matmul_case(point.shape, point);
    point.time = kSample;
    Calibration calibration;
    calibration.matmuls = {point};
    const CostModel costs(cluster(), calibration, Framework{});
    EXPECT_EQ(costs.local(bench.op, bench.tensors).provenance, Provenance::measured);
  }
}

TEST(Sweep, DevicesAlsoMultiplyWidthsThatTilesDoNotDivide) {
  std::int64_t uneven = 0;
  for (const MatmulPoint& point : device_matmul_sweep(SweepSize::full, DType::bf16))
    uneven += point.shape.n % 128 != 0 && point.shape.n % 8 == 0 && point.shape.m >= 4096;
  EXPECT_GE(uneven, 4);
}

TEST(Sweep, CollectivesCoverTwoAndFourRanksFrom256BytesTo64MiB) {
  const auto points = collective_sweep(SweepSize::full);
  for (const auto& [kind, ranks] :
       std::vector<std::pair<OpKind, std::int64_t>>{{OpKind::all_reduce, 2},
                                                    {OpKind::all_reduce, 4},
                                                    {OpKind::reduce_scatter, 2},
                                                    {OpKind::all_gather, 4},
                                                    {OpKind::send, 2}}) {
    for (const std::int64_t bytes : {std::int64_t{256}, std::int64_t{64} << 20}) {
      EXPECT_EQ(std::count_if(points.begin(), points.end(),
                              [&](const CollectivePoint& point) {
                                return point.kind == kind && point.ranks == ranks &&
                                       point.payload == Bytes(bytes);
                              }),
                1);
    }
  }
}

TEST(Sweep, NoMatmulIsMeasuredTwice) {
  const auto points = matmul_sweep(SweepSize::full);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(std::count(points.begin(), points.end(), points[i]), 1);
  }
}

}  // namespace
}  // namespace plimsoll
