// A step's costs have an uncertainty that agrees with sums made by hand, and extrapolated ops are
// named.
#include "simulator/ranks/step_account.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hand_programs.h"
#include "models/framework/framework.h"
#include "passes/pipeline.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// GELU at so many bytes: a microsecond per KiB, with an interquartile range of a tenth.
OpPoint gelu_point(std::int64_t bytes) {
  OpPoint point;
  point.kind = OpKind::gelu;
  point.moved = Bytes(bytes);
  const double time = double(bytes) / 1024 * 1e-6;
  point.time = {Seconds(time), Seconds(time / 10), 7, false};
  return point;
}

Calibration gelu_calibration(std::initializer_list<std::int64_t> sizes) {
  Calibration calibration;
  for (const std::int64_t bytes : sizes) calibration.ops.push_back(gelu_point(bytes));
  return calibration;
}

/// One rank: a GELU of 2 KiB forward, two of them backward in each of 3 micro-batches, one at the
/// end.
HandJob ten_gelus() {
  HandJob job;
  job.layers = {1};
  job.micro_batches = 3;
  return job;
}

struct Account {
  explicit Account(const std::vector<Program>& programs, const CostModel& costs)
      : expansions(expand(programs, costs)), topology(resolve_channels(expansions, costs)) {}
  std::vector<Expansion> expansions;
  RankTopology topology;
  const Expansion& of(std::int64_t rank) const {
    return expansions[topology.expansion[std::size_t(rank)]];
  }
  double open() const { return open_time(of(0), topology, 0).value(); }
  std::vector<OutOfRange> named() const { return out_of_range(of(0), topology, 0); }
};

CostModel on_one_device(Calibration calibration) {
  return {hand_cluster(DeviceKind::gpu, 1), std::move(calibration), Framework{}};
}

TEST(OpenTime, OfMeasuredOpsIsTheSumOfTheir90PercentHalfWidths) {
  const auto programs = hand_pipeline(ten_gelus());
  const Account account(programs, on_one_device(gelu_calibration({2048})));
  // 10 calls of 2 us; interquartile range 0.2 us: 1.349 deviations, of which 1.645 hold nine
  // tenths.
  EXPECT_NEAR(account.open(), 10 * 0.2e-6 * 1.645 / 1.349, 1e-12);
  EXPECT_TRUE(account.named().empty());
}

TEST(MeasuredShares, OfKernelsAreByTheirTime) {
  // Forward in f32 (2 us each, 4 of them), which was measured, backward in bf16 (6), which was not.
  auto programs = hand_pipeline(ten_gelus());
  for (Tensor& tensor : programs[0].routines[1].tensors) tensor.dtype = DType::bf16;
  const CostModel costs = on_one_device(gelu_calibration({2048}));
  const Account account(programs, costs);
  const Routine& backward = programs[0].routines[1];
  const double others = 6 * costs.local(backward.ops[0], backward.tensors).time.value();
  const MeasuredShares shares = measured_shares(account.of(0), account.topology, 0);
  EXPECT_NEAR(shares.kernels, 8e-6 / (8e-6 + others), 1e-12);
  EXPECT_EQ(shares.communications, 0);
}

TEST(MeasuredShares, OfCommunicationsSayWhatTheyLeaveOpen) {
  HandJob job = ten_gelus();
  job.layers = {1, 1};
  job.grid.degree = {1, 1, 1, 1, 2, 1, 1, 1};
  Calibration calibration;
  calibration.communicator = CommunicatorKind::nccl;
  CollectivePoint point;
  point.kind = OpKind::send;
  point.ranks = 2;
  point.payload = Bytes(1024);
  point.communicator = CommunicatorKind::nccl;
  point.time = {Seconds(1e-5), Seconds(1e-6), 7, false};
  calibration.collectives = {point};
  const auto programs = hand_pipeline(job);
  const CostModel costs(hand_cluster(DeviceKind::gpu, 2), calibration, Framework{});
  const Account account(programs, costs);
  const MeasuredShares shares = measured_shares(account.of(0), account.topology, 0);
  EXPECT_EQ(shares.kernels, 0);
  EXPECT_GT(shares.communications, 0.8);  // all but the sum of the norms' squares
  EXPECT_LT(shares.communications, 1);
  EXPECT_NEAR(shares.communications_open, 0.1 * kHalfWidth90, 1e-9);
  const Account nothing(programs, CostModel(hand_cluster(DeviceKind::gpu, 2), {}, Framework{}));
  EXPECT_EQ(measured_shares(nothing.of(0), nothing.topology, 0).communications, 0);
}

TEST(OpenTime, OfOneInterpolatedOpGrowsWithItsCalls) {
  const auto programs = hand_pipeline(ten_gelus());
  const Account account(programs, on_one_device(gelu_calibration({1024, 4096})));
  EXPECT_NEAR(account.open(), 10 * 0.2e-6 * 1.645 / 1.349, 1e-12);
}

TEST(OpenTime, OfDifferentInterpolatedOpsAddsUpAsSquares) {
  // Two sizes: half of what is open each would be, were they one.
  auto programs = hand_pipeline(ten_gelus());
  for (Tensor& tensor : programs[0].routines[1].tensors) tensor.shape = {512};  // backward: 4 KiB
  const Account account(programs, on_one_device(gelu_calibration({1024, 8192})));
  const double factor = 0.1 * 1.645 / 1.349;
  const double forward = 4 * 2e-6 * factor, backward = 6 * 4e-6 * factor;
  EXPECT_NEAR(account.open(), std::hypot(forward, backward), 1e-12);
}

TEST(OpenTime, OfDatasheetRatesIsAShareOfAllOfIt) {
  const auto programs = hand_pipeline(ten_gelus());
  const Account account(programs, {hand_cluster(DeviceKind::gpu, 1), std::nullopt, Framework{}});
  EXPECT_NEAR(account.open(), kDatasheetHalfWidth * 10 * 2048e-9, 1e-12);
}

TEST(OutOfRange, NamesShapesSizesAndGroups) {
  HandJob job = ten_gelus();
  job.grid.degree[std::size_t(Axis::mp)] = 4;
  const auto programs = hand_pipeline(job);
  Calibration calibration = gelu_calibration({512, 1024});  // all are of 2 KiB
  calibration.communicator = CommunicatorKind::nccl;
  for (const std::int64_t bytes : {64, 4096}) {  // groups of 2; four are asked for
    calibration.collectives.push_back({OpKind::all_reduce,
                                       2,
                                       Bytes(bytes),
                                       {Seconds(1e-6), Seconds(1e-8), 7, false},
                                       1,
                                       1,
                                       CommunicatorKind::nccl});
  }
  const CostModel costs(hand_cluster(DeviceKind::gpu, 8), calibration, Framework{});
  const std::vector<OutOfRange> named = Account(programs, costs).named();
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[0].what, "gelu 2.00 KiB f32");
  EXPECT_NEAR(named[0].time.value(), 10 * 2e-6, 1e-12);
  EXPECT_EQ(named[1].what, "all_reduce 1.00 KiB f32 over 4 ranks");
  EXPECT_EQ(simulate(programs, costs).out_of_range, named);
  EXPECT_TRUE(simulate(programs, costs, Folding::folded, Detail::none).out_of_range.empty());
}

TEST(OutOfRange, NamesAMatmulByItsShape) {
  const Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  const auto programs = lower({job, Strategy{}, bundled_framework()}, {}, Proof::none);
  Calibration calibration;
  MatmulPoint point;
  point.shape = {1, 8, 8, 8};
  point.time = {Seconds(1e-6), Seconds(1e-8), 7, false};
  calibration.matmuls = {point};
  Cluster cluster = hand_cluster(DeviceKind::gpu, 1);
  const auto named = Account(programs, {cluster, calibration, bundled_framework()}).named();
  // 32 tokens of hidden size 64, all heads' queries, keys and values at once.
  EXPECT_TRUE(std::any_of(named.begin(), named.end(), [](const OutOfRange& ops) {
    return ops.what == "matmul 32x192x64 f32";
  }));
}

}  // namespace
}  // namespace plimsoll
