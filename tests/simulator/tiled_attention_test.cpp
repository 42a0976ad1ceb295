// Attention on cores is charged by its tiles' products and exponentials; what a calibration says
// beside kernels.
#include <gtest/gtest.h>

#include "hand_programs.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {
namespace {

Sample sample(double microseconds) {
  return {Seconds(microseconds * 1e-6), Seconds(microseconds * 1e-8), 7, false};
}

Tensor f32(Shape shape) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  return tensor;
}

/// Matmuls of 1 us and 100 operations per nanosecond, and exponentials of 2 bytes per nanosecond.
Calibration calibration() {
  Calibration c;
  for (const std::int64_t m : {16, 64, 256}) {
    for (const std::int64_t n : {16, 64, 256}) {
      for (const std::int64_t k : {16, 64, 256}) {
        MatmulPoint point;
        point.shape = {1, m, n, k};
        point.time = sample(1 + 2e-5 * double(m) * double(n) * double(k));
        c.matmuls.push_back(point);
      }
    }
  }
  for (const std::int64_t row : {32, 128}) {
    for (const std::int64_t bytes : {8'192, 65'536}) {
      c.ops.push_back(
          {OpKind::softmax, DType::f32, Bytes(bytes), row, sample(double(bytes) / 2'048)});
    }
  }
  return c;
}

Seconds product(const CostModel& costs, std::int64_t m, std::int64_t n, std::int64_t k,
                MatmulParams params) {
  Op op;
  op.kind = OpKind::matmul;
  op.inputs = {TensorId(0), TensorId(1)};
  op.outputs = {TensorId(2)};
  op.params = params;
  const std::vector<Tensor> tensors = {f32(params.transpose_a ? Shape{k, m} : Shape{m, k}),
                                       f32(params.transpose_b ? Shape{n, k} : Shape{k, n}),
                                       f32({m, n})};
  return costs.local(op, tensors).time;
}

struct Attention {
  std::int64_t tokens = 256, heads = 2, depth = 64, value_depth = 64, sequence = 256;
  bool causal = true, backward = false;
};

Estimate estimate(const CostModel& costs, const Attention& of) {
  Op op;
  op.kind = of.backward ? OpKind::flash_attention_backward : OpKind::flash_attention;
  AttentionParams params;
  params.sequence = of.sequence;
  params.causal = of.causal;
  op.params = params;
  const Tensor q = f32({of.tokens, 1, of.heads, of.depth});
  const Tensor y = f32({of.tokens, of.heads * of.value_depth});
  std::vector<Tensor> tensors;
  if (of.backward) {
    op.inputs = {TensorId(0), TensorId(1)};
    op.outputs = {TensorId(2)};
    tensors = {y, q, q};
  } else {
    op.inputs = {TensorId(0)};
    op.outputs = {TensorId(1)};
    tensors = {q, y};
  }
  return costs.local(op, tensors);
}

CostModel cores(DeviceKind kind = DeviceKind::cpu_core) {
  return CostModel(hand_cluster(kind, 4), calibration(), Framework{});
}

/// The time of one tile of `rows` queries and `columns` keys.
double tile(const CostModel& costs, const Attention& of, std::int64_t rows, std::int64_t columns) {
  const auto scores = [&](std::int64_t width) {
    return product(costs, rows, columns, width, {0, false, true, false});
  };
  const Seconds to_rows = product(costs, rows, of.backward ? of.depth : of.value_depth, columns,
                                  {0, false, false, true});
  const auto to_keys = [&](std::int64_t width) {
    return product(costs, columns, width, rows, {0, true, false, true});
  };
  const Seconds weights(1e-6 * double(2 * rows * columns * 4) / 2'048);
  if (!of.backward) return (scores(of.depth) + weights + to_rows).value();
  return (2.0 * (scores(of.depth) + scores(of.value_depth)) + 2.0 * weights + to_rows +
          to_keys(of.depth) + to_keys(of.value_depth))
      .value();
}

void expect(const Attention& of, double tiles, std::int64_t rows, std::int64_t columns) {
  const CostModel costs = cores();
  const Estimate found = estimate(costs, of);
  const double right = tiles * tile(costs, of, rows, columns);
  EXPECT_NEAR(found.time.value(), right, 1e-9 * right);
  EXPECT_EQ(found.provenance, Provenance::extrapolated);
}

TEST(TiledAttention, IsMadeOfTilesOf64QueriesAnd128Keys) {
  // 256 queries of 2 heads by 256 keys are 16 tiles.
  Attention of;
  of.causal = false;
  expect(of, 16, 64, 128);
  of.value_depth = 16;
  expect(of, 16, 64, 128);
  of.backward = true;
  expect(of, 16, 64, 128);
}

TEST(TiledAttention, LeavesOutTilesBehindTheDiagonal) {
  // Half of the tiles, and those that the diagonal cuts: (64 + 128) / (2 x 256).
  expect({}, 16 * (0.5 + 0.375), 64, 128);
  Attention of;
  of.backward = true;
  expect(of, 16 * (0.5 + 0.375), 64, 128);
}

TEST(TiledAttention, HasSmallTilesOfShortSequences) {
  Attention of;
  of.tokens = of.sequence = 32;
  expect(of, 2, 32, 32);  // all of them are cut
}

TEST(TiledAttention, IsOfCoresWithMeasuredParts) {
  EXPECT_EQ(estimate(cores(DeviceKind::gpu), {}).provenance, Provenance::datasheet);
  Calibration without = calibration();
  without.ops.clear();
  const Cluster cluster = hand_cluster(DeviceKind::cpu_core, 4);
  EXPECT_EQ(estimate(CostModel(cluster, without, Framework{}), {}).provenance,
            Provenance::datasheet);
  without = calibration();
  without.matmuls.clear();
  EXPECT_EQ(estimate(CostModel(cluster, without, Framework{}), {}).provenance,
            Provenance::datasheet);
}

TEST(WakeUp, IsAsMeasured) {
  Calibration c;
  c.wake_up = sample(3);
  c.sleeps_after = Seconds(20e-6);
  const Cluster cluster = hand_cluster(DeviceKind::cpu_core, 4);
  const WakeUpCost cost = CostModel(cluster, c, Framework{}).wake_up();
  EXPECT_EQ(cost.delay.count(), 3'000'000);
  EXPECT_EQ(cost.after.count(), 20'000'000);
  const WakeUpCost none = CostModel(cluster, std::nullopt, Framework{}).wake_up();
  EXPECT_EQ(none.delay.count() + none.after.count(), 0);
}

TEST(Overlap, IsThatOfGroupsWithinOrAcrossNodes) {
  Calibration c;
  c.communicator = CommunicatorKind::nccl;
  for (const std::int64_t nodes : {1, 2}) {
    c.overlaps.push_back({OpKind::matmul, OpKind::all_reduce, CommunicatorKind::nccl, nodes,
                          Bytes(1'000), 1 + double(nodes), 1, 7, 0, 0});
  }
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), c, Framework{});
  Op op;
  op.kind = OpKind::all_reduce;
  op.inputs = op.outputs = {TensorId(0)};
  op.params = CollectiveParams{{{Axis::dp}, false}, Reduction::sum};
  const std::vector<Tensor> tensors = {f32({250})};
  GroupSpread spread;
  spread.ranks = 2;
  EXPECT_EQ(costs.slowdowns(op, tensors, spread).compute, 2);
  spread.nodes = 2;
  EXPECT_EQ(costs.slowdowns(op, tensors, spread).compute, 3);
}

}  // namespace
}  // namespace plimsoll
