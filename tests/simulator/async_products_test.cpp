// Products hide parts of the communications around them, by hand and in a whole step.
#include "simulator/costs/async_products.h"

#include <gtest/gtest.h>

#include "hand_programs.h"
#include "passes/pipeline.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

Framework asynchronous() { return framework_by_name("torchtitan-async-tp"); }

/// x8 [64,32] gathered to [512,32], a product with [32,m] of its rows, one that sums over them.
Routine gathered(std::int64_t m) {
  Routine routine;
  const auto tensor = [&](const char* name, Shape shape) {
    Tensor made;
    made.name = name;
    made.shape = std::move(shape);
    routine.tensors.push_back(std::move(made));
    return TensorId(routine.tensors.size() - 1);
  };
  const TensorId part = tensor("part", {64, 32}), whole = tensor("whole", {512, 32});
  const TensorId weight = tensor("weight", {32, m}), y = tensor("y", {512, m});
  const TensorId gradient = tensor("gradient", {32, m});
  Op gather;
  gather.kind = OpKind::all_gather;
  gather.stream = Stream::mp;
  gather.params = CollectiveParams{Group{{Axis::mp}}, Reduction::sum};
  gather.inputs = {part};
  gather.outputs = {whole};
  Op product;
  product.kind = OpKind::matmul;
  product.params = MatmulParams{};
  product.inputs = {whole, weight};
  product.outputs = {y};
  Op sums = product;
  sums.params = MatmulParams{.transpose_a = true};
  sums.inputs = {whole, y};
  sums.outputs = {gradient};
  routine.ops = {gather, product, sums};
  return routine;
}

TEST(AsyncProducts, TheProductOfOtherPartsCoversTheGather) {
  const CostModel costs(hand_cluster(DeviceKind::gpu, 8), std::nullopt, asynchronous());
  const Routine routine = gathered(64);
  const Seconds product = costs.local(routine.ops[1], routine.tensors).time;
  ASSERT_GT(product, Seconds(0));
  const auto left = [&](double times) {
    const Estimate whole{product * times, product * times * 0.1, Provenance::datasheet};
    return exposed_communication(routine, 0, whole, 8, costs);
  };
  // Without efficiency parameters eight parts take what the product takes, bounded by memory or
  // not, but for the weight that each of them reads.
  const double parts = [&] {
    std::vector<Tensor> tensors = routine.tensors;
    tensors[1].shape[0] = tensors[3].shape[0] = 64;
    return 8 * (costs.local(routine.ops[1], tensors).time / product);
  }();
  EXPECT_NEAR(left(0.5).time / product, std::min(0.5, parts - 1), 1e-9);
  EXPECT_NEAR(left(10).time / product, 10 - parts * 7 / 8 + parts - 1, 1e-9);
  EXPECT_NEAR(left(10).spread / left(10).time, 0.1, 1e-9);
}

TEST(AsyncProducts, OnlyWhatReadsItsRowsAndOnlyWhereTheFrameworkHasIt) {
  const Routine routine = gathered(64);
  const Estimate whole{Seconds(1), Seconds(0), Provenance::datasheet};
  const CostModel costs(hand_cluster(DeviceKind::gpu, 8), std::nullopt, asynchronous());
  const CostModel others(hand_cluster(DeviceKind::gpu, 8), std::nullopt,
                         framework_by_name("torchtitan-compiled"));
  EXPECT_LT(exposed_communication(routine, 0, whole, 8, costs).time, whole.time);
  EXPECT_EQ(exposed_communication(routine, 0, whole, 1, costs).time, whole.time);
  EXPECT_EQ(exposed_communication(routine, 0, whole, 8, others).time, whole.time);
  Routine sums = routine;
  sums.ops.erase(sums.ops.begin() + 1);
  EXPECT_EQ(exposed_communication(sums, 0, whole, 8, costs).time, whole.time);
}

TEST(AsyncProducts, AStepIsFasterByLessThanWhatItExposed) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/models/presets/jobs/llama3-8b.json");
  job.layers = 4;
  job.global_batch = 2;
  const Strategy strategy = parse_strategy("mp=8,sequence_parallel=true,recompute=full");
  const Cluster cluster = read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                                       "/models/presets/clusters/dgx-h100-80gb.json");
  const auto predicted = [&](const char* name) {
    const CostModel costs(cluster, std::nullopt, framework_by_name(name));
    return evaluate(Target(job, costs, 8), strategy).prediction;
  };
  const Prediction plain = predicted("torchtitan-compiled"),
                   async = predicted("torchtitan-async-tp");
  EXPECT_LT(async.step_time, plain.step_time);
  EXPECT_GT(async.step_time, plain.step_time - plain.breakdown.exposed_communication);
}

}  // namespace
}  // namespace plimsoll
