// Cost model: measured points, interpolation, extrapolation and datasheet, with their provenance.
#include "simulator/costs/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hand_programs.h"

namespace plimsoll {
namespace {

Sample sample(double microseconds) {
  return {Seconds(microseconds * 1e-6), Seconds(microseconds * 1e-8), 7, false};
}

struct Case {
  Op op;
  std::vector<Tensor> tensors;
};

Tensor f32(Shape shape) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  return tensor;
}

/// gelu of n floats moves 8 n bytes.
Case gelu(std::int64_t n) {
  Case result;
  result.op.kind = OpKind::gelu;
  result.op.inputs = {TensorId(0)};
  result.op.outputs = {TensorId(1)};
  result.tensors = {f32({n}), f32({n})};
  return result;
}

Case softmax(std::int64_t matrices, std::int64_t s) {
  Case result = gelu(1);
  result.op.kind = OpKind::softmax;
  result.tensors = {f32({matrices, 1, s, s}), f32({matrices, 1, s, s})};
  return result;
}

Case matmul(std::int64_t m, std::int64_t n, std::int64_t k, MatmulParams params = {}) {
  Case result;
  result.op.kind = OpKind::matmul;
  result.op.inputs = {TensorId(0), TensorId(1)};
  result.op.outputs = {TensorId(2)};
  result.op.params = params;
  result.tensors = {f32({m, k}), f32({k, n}), f32({m, n})};
  return result;
}

Case collective(OpKind kind, std::int64_t floats) {
  Case result;
  result.op.kind = kind;
  result.op.inputs = {TensorId(0)};
  result.tensors = {f32({floats})};
  if (kind == OpKind::send) {
    result.op.params = TransferParams{1};
  } else {
    result.op.outputs = {TensorId(0)};
    result.op.params = CollectiveParams{{{Axis::dp}, false}, Reduction::sum};
  }
  return result;
}

Calibration calibration() {
  Calibration c;
  c.dispatch_op = sample(0.5);
  c.dispatch_call = sample(2);
  c.ops = {{OpKind::gelu, DType::f32, Bytes(8'000), 0, sample(1)},
           {OpKind::gelu, DType::f32, Bytes(800'000), 0, sample(100)},
           {OpKind::softmax, DType::f32, Bytes(8 * 64 * 64), 64, sample(10)},
           {OpKind::softmax, DType::f32, Bytes(8 * 64 * 64), 16, sample(40)}};
  c.collectives = {{OpKind::all_reduce, 2, Bytes(1'000), sample(1)},
                   {OpKind::all_reduce, 2, Bytes(100'000), sample(10)},
                   {OpKind::all_reduce, 4, Bytes(1'000), sample(3)},
                   {OpKind::send, 2, Bytes(1'000), sample(0.5)}};
  return c;
}

CostModel calibrated(Calibration c = calibration()) {
  return CostModel(hand_cluster(DeviceKind::cpu_core, 4), std::move(c), Framework{});
}
CostModel datasheet(DeviceKind kind = DeviceKind::cpu_core) {
  return CostModel(hand_cluster(kind, 4), std::nullopt, Framework{});
}

void expect(const Estimate& estimate, double microseconds, Provenance provenance) {
  EXPECT_NEAR(estimate.time.value() * 1e6, microseconds, microseconds * 1e-9);
  EXPECT_EQ(estimate.provenance, provenance) << to_text(estimate.provenance);
}

Estimate local(const CostModel& costs, const Case& c) { return costs.local(c.op, c.tensors); }

TEST(MemoryBound, AMeasuredSizeIsTheMeasuredTimeWithin90Percent) {
  const Estimate estimate = local(calibrated(), gelu(1'000));
  expect(estimate, 1, Provenance::measured);
  // Interquartile range 0.01 us of a normal distribution: deviation 0.00741, times 1.645.
  EXPECT_NEAR(estimate.spread.value(), 0.012194e-6, 1e-12);
}

TEST(MemoryBound, BetweenTwoSizesLogarithmsAreInterpolated) {
  // 80,000 is half way between 8,000 and 800,000 on a logarithmic scale; so is 10 between 1 and
  // 100.
  expect(local(calibrated(), gelu(10'000)), 10, Provenance::interpolated);
}

TEST(MemoryBound, BeyondTheRangeBandwidthIsConstantAndBelowItWithoutLatencyToo) {
  expect(local(calibrated(), gelu(1'000'000)), 1'000, Provenance::extrapolated);
  expect(local(calibrated(), gelu(10)), 0.01, Provenance::extrapolated);
}

TEST(MemoryBound, RowLengthsAreInterpolatedToo) {
  // 32 is half way between rows of 16 (40 us) and 64 (10 us) at the same 32,768 bytes.
  expect(local(calibrated(), softmax(1, 64)), 10, Provenance::measured);
  expect(local(calibrated(), softmax(4, 32)), 20, Provenance::interpolated);
  expect(local(calibrated(), softmax(256, 4)), 40, Provenance::extrapolated);
}

TEST(MemoryBound, PointsAnswerForTheirOwnTypeOnly) {
  Case half = gelu(1'000);
  half.tensors[0].dtype = half.tensors[1].dtype = DType::bf16;
  expect(local(calibrated(), half), 4, Provenance::datasheet);  // 4,000 bytes at 1 byte/ns
  // bf16 read and f32 written is a bf16 kernel, which nobody measured; the other way round the
  // points are of a kernel that differs in what it writes.
  Case widens = gelu(1'000);
  widens.tensors[0].dtype = DType::bf16;
  expect(local(calibrated(), widens), 6, Provenance::datasheet);
  Case narrows = gelu(1'600);
  narrows.tensors[1].dtype = DType::bf16;
  expect(local(calibrated(), narrows), 1.2, Provenance::extrapolated);
}

TEST(MemoryBound, AKindWithoutPointsIsChargedAtMemoryBandwidth) {
  Case add = gelu(1'000);
  add.op.kind = OpKind::add;
  add.op.inputs = {TensorId(0), TensorId(0)};
  expect(local(calibrated(), add), 12, Provenance::datasheet);  // 12,000 bytes at 1 byte/ns
}

TEST(Matmul, WithoutCalibrationTheRooflineDecides) {
  // 10 x 10 x 1000: 200,000 operations at 1/ns; 80,400 bytes at 1/ns. Then k = 1: 200 against 480.
  expect(local(datasheet(), matmul(10, 10, 1000)), 200, Provenance::datasheet);
  expect(local(datasheet(), matmul(10, 10, 1)), 0.48, Provenance::datasheet);
}

/// A machine whose matmul time is 1 us + operations at 100/ns.
double smooth_time(double m, double n, double k) { return 1 + 2 * m * n * k / 100e3; }

CostModel matmul_model(Calibration c) {
  Cluster cluster = hand_cluster(DeviceKind::cpu_core, 4);
  cluster.device.memory_bandwidth = BytesPerSecond(50e9);
  return CostModel(cluster, std::move(c), Framework{});
}

Calibration matmul_grid() {
  Calibration c = calibration();
  for (std::int64_t m : {64, 256, 1024}) {
    for (std::int64_t n : {64, 256, 1024}) {
      for (std::int64_t k : {64, 256, 1024}) {
        MatmulPoint point;
        point.shape = {1, m, n, k};
        point.time = sample(smooth_time(double(m), double(n), double(k)));
        c.matmuls.push_back(point);
      }
    }
  }
  return c;
}

TEST(Matmul, AMeasuredShapeIsTheMeasuredTime) {
  const Estimate estimate = local(matmul_model(matmul_grid()), matmul(256, 64, 1024));
  expect(estimate, smooth_time(256, 64, 1024), Provenance::measured);
}

TEST(Matmul, ShapesBetweenAreInterpolated) {
  const CostModel costs = matmul_model(matmul_grid());
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
           {128, 128, 128}, {512, 512, 512}, {64, 512, 128}, {1000, 100, 300}, {384, 1024, 256}}) {
    const Estimate estimate = local(costs, matmul(m, n, k));
    const double right = smooth_time(double(m), double(n), double(k));
    EXPECT_NEAR(estimate.time.value() * 1e6, right, 0.12 * right) << m << " " << n << " " << k;
    EXPECT_EQ(estimate.provenance, Provenance::interpolated);
    EXPECT_GT(estimate.spread.value(), 0);
  }
}

TEST(Matmul, ShapesOutsideAreExtrapolatedAtTheRateNearby) {
  const Estimate estimate = local(matmul_model(matmul_grid()), matmul(4096, 4096, 1024));
  EXPECT_EQ(estimate.provenance, Provenance::extrapolated);
  const double right = smooth_time(4096, 4096, 1024);
  EXPECT_NEAR(estimate.time.value() * 1e6, right, 0.1 * right);
}

TEST(Matmul, AnotherFormIsExtrapolatedFromTheNearest) {
  MatmulParams transposed;
  transposed.transpose_b = true;
  Case c = matmul(256, 256, 256, transposed);
  const Estimate estimate = local(matmul_model(matmul_grid()), c);
  EXPECT_EQ(estimate.provenance, Provenance::extrapolated);
  EXPECT_NEAR(estimate.time.value() * 1e6, smooth_time(256, 256, 256),
              0.1 * smooth_time(256, 256, 256));
}

Estimate communication(const CostModel& costs, const Case& c, GroupSpread spread) {
  return costs.communication(c.op, c.tensors, spread);
}

TEST(Communication, MeasuredInterpolatedAndScaledByRanks) {
  const CostModel costs = calibrated();
  const auto reduce = [](std::int64_t floats) { return collective(OpKind::all_reduce, floats); };
  expect(communication(costs, reduce(250), {2, 0}), 1, Provenance::measured);
  expect(communication(costs, reduce(2'500), {2, 0}), std::sqrt(10.0), Provenance::interpolated);
  expect(communication(costs, reduce(250), {4, 0}), 3, Provenance::measured);
  expect(communication(costs, reduce(250), {8, 0}), 6, Provenance::extrapolated);
  expect(communication(costs, reduce(250), {1, 0}), 0, Provenance::measured);
}

TEST(Communication, AReceiveCostsWhatTheSendDoes) {
  Case recv = collective(OpKind::send, 250);
  recv.op.kind = OpKind::recv;
  std::swap(recv.op.inputs, recv.op.outputs);
  recv.op.params = TransferParams{-1};
  expect(communication(calibrated(), recv, {2, 0}), 0.5, Provenance::measured);
}

TEST(Communication, SumsOfOtherTypesAreExtrapolated) {
  Case reduce = collective(OpKind::all_reduce, 500);
  reduce.tensors[0].dtype = DType::bf16;  // 1,000 bytes
  expect(communication(calibrated(), reduce, {2, 0}), 1, Provenance::extrapolated);
}

TEST(Communication, PointsHoldWithinANodeOnly) {
  const CostModel costs = calibrated();
  const Case reduce = collective(OpKind::all_reduce, 250);
  const GroupSpread inside = costs.spread(std::vector<std::int64_t>{0, 1});
  const GroupSpread apart = costs.spread(std::vector<std::int64_t>{3, 4});
  expect(communication(costs, reduce, inside), 1, Provenance::measured);
  // 1,000 bytes at 0.01 byte/ns between nodes, and two steps of 1 us.
  expect(communication(costs, reduce, apart), 100 + 2, Provenance::datasheet);
  // A level more within the node.
  Cluster sockets = hand_cluster(DeviceKind::cpu_core, 4);
  sockets.levels.insert(sockets.levels.begin(), sockets.levels.front());
  sockets.levels.front().devices = 2;
  const CostModel split(sockets, calibration(), Framework{});
  const GroupSpread both = split.spread(std::vector<std::int64_t>{1, 2});
  ASSERT_EQ(both.level, 1u);
  expect(communication(split, reduce, both), 1, Provenance::measured);
}

TEST(Communication, PointsOfOtherCommunicatorsAreNotAsked) {
  Calibration c = calibration();
  const Case reduce = collective(OpKind::all_reduce, 250);
  for (CollectivePoint& point : c.collectives) point.communicator = CommunicatorKind::nccl;
  expect(communication(calibrated(c), reduce, {2, 0}), 10 + 0.2, Provenance::datasheet);
  c.communicator = CommunicatorKind::nccl;
  expect(communication(calibrated(c), reduce, {2, 0}), 1, Provenance::measured);
}

TEST(Communication, OfProcessesIsMeasuredAcrossNodesToo) {
  Calibration c = calibration();
  c.communicator = CommunicatorKind::mpi;
  for (CollectivePoint& point : c.collectives) point.communicator = CommunicatorKind::mpi;
  c.collectives.push_back(
      {OpKind::all_reduce, 2, Bytes(1'000), sample(80), 2, 1, CommunicatorKind::mpi});
  const CostModel costs = calibrated(c);
  EXPECT_EQ(costs.execution(), Execution::processes);
  EXPECT_EQ(calibrated().execution(), Execution::threads);
  const Case reduce = collective(OpKind::all_reduce, 250);
  const GroupSpread inside = costs.spread(std::vector<std::int64_t>{0, 1});
  const GroupSpread apart = costs.spread(std::vector<std::int64_t>{3, 4});
  EXPECT_EQ(inside.nodes, 1);
  EXPECT_EQ(apart.nodes, 2);
  expect(communication(costs, reduce, inside), 1, Provenance::measured);
  expect(communication(costs, reduce, apart), 80, Provenance::measured);
}

TEST(Communication, BesideOpsOfProcesses) {
  Calibration c;
  c.communicator = CommunicatorKind::mpi;
  // 0.01 us per byte, and 2 us.
  c.collectives = {{OpKind::all_reduce, 2, Bytes(100), sample(3), 2, 1, CommunicatorKind::mpi},
                   {OpKind::all_reduce, 2, Bytes(20'000), sample(200), 2, 1, CommunicatorKind::mpi},
                   {OpKind::send, 2, Bytes(100), sample(2), 2, 1, CommunicatorKind::mpi}};
  c.overlaps = {
      {OpKind::matmul, OpKind::all_reduce, CommunicatorKind::mpi, 2, Bytes(1'000), 2, 4, 7, 0, 0},
      {OpKind::add, OpKind::all_reduce, CommunicatorKind::mpi, 2, Bytes(1'000), 0.5, 1, 7, 0, 0}};
  const CostModel costs = calibrated(c);
  const GroupSpread apart = costs.spread(std::vector<std::int64_t>{3, 4});
  const Case reduce = collective(OpKind::all_reduce, 250);
  const MutualSlowdown beside = costs.mutual_slowdown(reduce.op, reduce.tensors, apart);
  EXPECT_EQ(beside.compute, (std::array{kFullSpeed / 2, kFullSpeed}));
  EXPECT_EQ(beside.communication, (std::array{kFullSpeed / 4, kFullSpeed}));
  EXPECT_NEAR(beside.latency.seconds().value(), 2e-6, 1e-9);
  EXPECT_TRUE(beside.sends && beside.receives);
  const Case send = collective(OpKind::send, 250);
  const MutualSlowdown sends = costs.mutual_slowdown(send.op, send.tensors, apart);
  EXPECT_TRUE(sends.sends && !sends.receives);
  const GroupSpread inside = costs.spread(std::vector<std::int64_t>{0, 1});
  EXPECT_FALSE(costs.mutual_slowdown(send.op, send.tensors, inside).sends);
}

TEST(Communication, BesideKernelsOfGpus) {
  const GroupSpread pair{2, 0};
  const Case reduce = collective(OpKind::all_reduce, 250);
  const auto slowdowns = [&](const CostModel& costs, const Case& of) {
    return costs.slowdowns(of.op, of.tensors, pair);
  };
  Cluster cluster = read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/dgx-a100-80gb.json");
  cluster.efficiency->overlap = {1.2, 1.1};
  const Framework framework = framework_by_name("torchtitan");
  const CostModel stated(cluster, std::nullopt, framework);
  EXPECT_EQ(slowdowns(stated, reduce).compute, 1.2);
  EXPECT_EQ(slowdowns(stated, reduce).communication, 1.1);
  EXPECT_EQ(stated.slowdowns(reduce.op, reduce.tensors, {1, 0}).compute, 1);  // nobody to meet
  // Only measured points count, and kinds without points cost nothing.
  Calibration measured;
  measured.communicator = CommunicatorKind::nccl;
  measured.overlaps = {{OpKind::matmul, OpKind::all_reduce, CommunicatorKind::nccl, 1, Bytes(1'000),
                        1.5, 2, 7, 0, 0}};
  const CostModel calibrated(cluster, measured, framework);
  EXPECT_EQ(slowdowns(calibrated, reduce).compute, 1.5);
  EXPECT_EQ(slowdowns(calibrated, reduce).communication, 2);
  EXPECT_EQ(slowdowns(calibrated, collective(OpKind::send, 250)).compute, 1);
  // Each kind of device has its own.
  OtherDevices others{1, 1, cluster.device, cluster.efficiency};
  others.efficiency->overlap.compute_slowdown = 1.3;
  cluster.other_devices = {others};
  const CostModel mixed(cluster, std::nullopt, framework);
  EXPECT_EQ(mixed.slowdowns(reduce.op, reduce.tensors, pair, 0).compute, 1.2);
  EXPECT_EQ(mixed.slowdowns(reduce.op, reduce.tensors, pair, 1).compute, 1.3);
}

/// The latency that shares no link is that of the curve that says what the communication takes.
TEST(Communication, LinksAreHeldByTheCurveItIsPredictedBy) {
  Calibration c = calibration();
  c.communicator = CommunicatorKind::nccl;
  const auto add = [&](OpKind kind, std::int64_t bytes, double time) {
    c.collectives.push_back({kind, 2, Bytes(bytes), sample(time), 1, 1, CommunicatorKind::nccl});
  };
  add(OpKind::reduce_scatter, 100, 3), add(OpKind::reduce_scatter, 20'000, 200);
  const Case reduce = collective(OpKind::reduce, 250);
  const auto latency = [&] {
    return calibrated(c).link_use(reduce.op, reduce.tensors, {2, 0}).latency.seconds().value();
  };
  EXPECT_NEAR(latency(), 3e-6 - 1e-6, 1e-9);
  add(OpKind::reduce, 100, 5), add(OpKind::reduce, 20'000, 100);
  EXPECT_NEAR(latency(), 5e-6 - 0.5e-6, 1e-9);
}

TEST(Communication, WithoutCalibrationRingsOverTheLevel) {
  // 4,000 bytes at 0.1 byte/ns within the node and 0.01 beyond; 0.1 and 1 us for each step.
  const CostModel costs = datasheet(DeviceKind::gpu);
  const auto time = [&](OpKind kind, GroupSpread spread) {
    return communication(costs, collective(kind, 1'000), spread);
  };
  expect(time(OpKind::all_reduce, {4, 0}), 2 * 0.75 * 40 + 6 * 0.1, Provenance::datasheet);
  expect(time(OpKind::reduce_scatter, {4, 0}), 0.75 * 40 + 3 * 0.1, Provenance::datasheet);
  const GroupSpread apart = costs.spread(std::vector<std::int64_t>{3, 4});
  expect(time(OpKind::all_gather, apart), 0.5 * 400 + 1, Provenance::datasheet);
  expect(time(OpKind::send, apart), 400 + 1, Provenance::datasheet);
}

TEST(Communication, GroupsOfAGridLieAsTheirRanksDo) {
  const CostModel costs = datasheet();
  // By grid: dp pairs {0,2} {1,3} within the node of 4, pipeline neighbours 0 -> 4 beyond.
  Grid grid;
  grid.degree = {2, 1, 1, 2, 2, 1, 1, 1};
  const Case reduce = collective(OpKind::all_reduce, 1'000), send = collective(OpKind::send, 1'000);
  expect(costs.communication(reduce.op, reduce.tensors, grid), 40 + 0.2, Provenance::datasheet);
  expect(costs.communication(send.op, send.tensors, grid), 401, Provenance::datasheet);
}

TEST(Dispatch, IsMeasuredWhereCalibrated) {
  EXPECT_EQ(calibrated().dispatch_op().count(), 500'000);
  EXPECT_EQ(calibrated().dispatch_call().count(), 2'000'000);
  Framework framework;
  framework.host.dispatch.op = Seconds(4e-6);
  const Cluster cluster = hand_cluster(DeviceKind::gpu, 4);
  EXPECT_EQ(CostModel(cluster, std::nullopt, framework).dispatch_op().count(), 4'000'000);
  EXPECT_EQ(CostModel(cluster, calibration(), framework).dispatch_op().count(), 500'000);
  EXPECT_EQ(datasheet().dispatch_call().count(), 0);
  EXPECT_EQ(CostModel(cluster, Calibration(), framework).dispatch_op().count(), 4'000'000);
  Calibration nothing;
  EXPECT_EQ(calibrated(nothing).dispatch_op().count(), 1);  // an engine item takes some time
}

Cluster a100() {
  return read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                      "/models/presets/clusters/dgx-a100-80gb.json");
}

TEST(CostModel, WhatWasMeasuredIsNotScaledByWhatWasFitted) {
  Calibration measured = calibration();
  measured.communicator = CommunicatorKind::nccl;
  for (CollectivePoint& point : measured.collectives) point.communicator = CommunicatorKind::nccl;
  const CostModel costs(a100(), measured, Framework{}, FittedCalibration{});
  EXPECT_TRUE(costs.fitted().has_value());
  const CostModel slower = costs.with_layer_factor(2);
  const Case known = gelu(1'000), unknown = matmul(512, 512, 512);
  EXPECT_EQ(local(slower, known).time, local(costs, known).time);
  EXPECT_TRUE(local(slower, known).of_calibration);
  expect(local(slower, known), 1, Provenance::measured);
  EXPECT_EQ(local(slower, unknown).time, 2 * local(costs, unknown).time);
  EXPECT_FALSE(local(slower, unknown).of_calibration);
  EXPECT_EQ(slower.dispatch_op().count(), 500'000);  // measured
  const Case reduce = collective(OpKind::all_reduce, 250);
  expect(communication(slower, reduce, {2, 0}), 1, Provenance::measured);
  EXPECT_TRUE(communication(slower, reduce, {2, 0}).of_calibration);
  EXPECT_FALSE(communication(slower, collective(OpKind::all_gather, 250), {2, 0}).of_calibration);
}

TEST(CostModel, HostTimesThatWereNotMeasuredAreScaled) {
  Calibration imported;  // collectives alone
  imported.communicator = CommunicatorKind::nccl;
  Framework framework;
  framework.host.dispatch.op = Seconds(0.67 * 4e-6);  // of the host of an A100
  const CostModel costs(a100(), imported, framework, FittedCalibration{});
  EXPECT_EQ(costs.with_layer_factor(1.5).dispatch_op().count(), 6'000'000);
}

TEST(CostModel, AFactorOfLayersIsFitted) {
  Cluster cluster = a100();
  cluster.efficiency->memory.fitted.reset();
  const CostModel costs(cluster, std::nullopt, Framework{});
  EXPECT_EQ(local(costs, gelu(1'000'000)).provenance, Provenance::datasheet);
  EXPECT_EQ(local(costs.with_layer_factor(1.1), gelu(1'000'000)).provenance, Provenance::fitted);
  EXPECT_EQ(local(costs.with_layer_factor(1), gelu(1'000'000)).provenance, Provenance::datasheet);
  cluster.efficiency->memory.fitted = {Bytes(1), Bytes(2), 0.1};
  const CostModel beyond(cluster, std::nullopt, Framework{});
  EXPECT_EQ(local(beyond.with_layer_factor(1.1), gelu(1'000'000)).provenance,
            Provenance::extrapolated);
}

TEST(CostModel, OtherOpsOfAFrameworkCountUnlessKernelsLikeThemWereMeasured) {
  Framework framework;
  framework.host.dispatch.ops_per_kernel = 2;
  const auto others = [&](Calibration measured) {
    return CostModel(a100(), std::move(measured), framework).other_ops().count();
  };
  Calibration imported = calibration();
  imported.ops.clear();
  EXPECT_GT(others(imported), 0);
  EXPECT_EQ(others(calibration()), 0);
}

// A gradient that its product does not add is written, and another kernel adds it to the sum.
TEST(CostModel, GradientsAddedApartTakeAKernelMore) {
  Cluster cluster = read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                                 "/models/presets/clusters/dgx-a100-80gb.json");
  MemoryEfficiency& memory = cluster.efficiency->memory;
  memory.fixed_time = Seconds(0);
  Framework framework = framework_by_name("megatron-lm");
  MatmulParams adds;
  adds.accumulate = true;
  Case product = matmul(4096, 4096, 16384, adds);  // bound by compute
  product.tensors[0].dtype = product.tensors[1].dtype = DType::bf16;
  const double values = 4096.0 * 4096;
  const auto time = [&](bool in_matmul) {
    framework.kernels.products.add_gradients = in_matmul;
    return CostModel(cluster, std::nullopt, framework).local(product.op, product.tensors).time;
  };
  const auto bytes_apart = [&] {
    const double rate = cluster.device.memory_bandwidth.value() * memory.bandwidth_fraction;
    return (time(false) - time(true)).value() * rate / values;
  };
  product.tensors[2].dtype = DType::bf16;  // reads two and writes one
  EXPECT_NEAR(bytes_apart(), 6, 0.6);
  product.tensors[2].dtype = DType::f32;  // Megatron-LM: main_grad.add_(grad)
  EXPECT_NEAR(bytes_apart(), 10, 0.8);
  framework.memory.gradients = GradientMemory::bf16_also_in_f32;  // DeepSpeed copies it first
  EXPECT_NEAR(bytes_apart(), 18, 0.8);
}

TEST(CostModel, ProductsScaledByRowsHaveARateOfTheirOwn) {
  Cluster cluster = read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                                 "/models/presets/clusters/dgx-h100-80gb.json");
  MatmulEfficiency& matmuls = cluster.efficiency->matmul;
  matmuls.fixed_time = Seconds(0);
  const auto time = [&](bool by_rows, double rate) {
    matmuls.rowwise_rate = rate;
    MatmulParams params;
    params.transpose_b = true;
    params.scaled_by_rows = by_rows;
    Case product = matmul(16384, 16384, 16384, params);  // bound by compute
    product.tensors[0].dtype = product.tensors[1].dtype = DType::e4m3;
    product.tensors[2].dtype = DType::bf16;
    return local(CostModel(cluster, std::nullopt, Framework{}), product).time.value();
  };
  EXPECT_EQ(time(false, 0.5), time(false, 1));
  EXPECT_EQ(time(true, 1), time(false, 1));
  EXPECT_NEAR(time(true, 0.5), 2 * time(false, 1), 0.02 * time(false, 1));
}

}  // namespace
}  // namespace plimsoll
