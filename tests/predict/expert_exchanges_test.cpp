// Rows of experts as frameworks exchange them: hosts wait for their numbers, and kernels sort them.
#include <gtest/gtest.h>

#include <algorithm>

#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

Framework waiting(bool exchange, bool products) {
  Framework framework = framework_by_name("megatron-lm");
  framework.host.dispatch.op = Seconds(100e-6);
  framework.host.waits.before_exchange = exchange;
  framework.host.waits.before_products = products;
  return framework;
}

/// The step of Qwen3 30B with 8 of its 48 layers and a number of experts, on eight devices of a
/// node.
double step(const Framework& framework, const std::string& strategy, std::int64_t experts = 128) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/qwen3-30b-a3b.json");
  job.layers = 8;
  job.global_batch = 32;
  job.sequence = 4096;
  job.experts->count = experts;
  job.experts->chosen = std::min<std::int64_t>(job.experts->chosen, experts / 4);
  const CostModel costs(preset_cluster("dgx-h100-80gb"), std::nullopt, framework);
  return evaluate(Target(job, costs, 8), parse_strategy(strategy)).prediction.step_time.value();
}

const std::string kExchanged = "dp=8,ep=8,expert_dispatch=all_to_all,micro_batch=1";

TEST(ExpertCounts, AHostThatWaitsIsNotAhead) {
  const double free = step(waiting(false, false), kExchanged);
  // Products need less of the wait than exchanges: rows are under way while the host waits.
  const double products = step(waiting(false, true), kExchanged);
  const double exchange = step(waiting(true, true), kExchanged);
  EXPECT_GT(products, 1.01 * free);
  EXPECT_GT(exchange, products);
  EXPECT_LT(exchange, 1.5 * free);
  EXPECT_EQ(step(waiting(true, false), kExchanged), exchange) << "the counts are there already";
}

TEST(ExpertCounts, WithoutAnExchangeProductsAloneNeedThem) {
  const std::string alone = "sharding_degree=8,micro_batch=1";
  const auto fused = [&](bool exchange, bool products) {
    Framework framework = waiting(exchange, products);
    framework.kernels.products.experts_apart = false;  // so that the device limits the step
    return step(framework, alone);
  };
  const double free = fused(false, false);
  EXPECT_EQ(fused(true, false), free);
  EXPECT_GT(fused(false, true), 1.005 * free);
}

TEST(ExpertCounts, ForwardsThatAreRepeatedWaitAgain) {
  const std::string repeated = kExchanged + ",recompute=full";
  const double once =
      step(waiting(true, true), kExchanged) - step(waiting(false, false), kExchanged);
  const double twice = step(waiting(true, true), repeated) - step(waiting(false, false), repeated);
  EXPECT_GT(twice, 1.2 * once);
}

TEST(ExpertOps, AreSeveralOfAFrameworksOps) {
  Framework framework = waiting(false, false);
  framework.host.dispatch.op = Seconds(2e-3);  // the host limits the step
  framework.host.dispatch.ops_per_expert_op = 1;
  const double single = step(framework, kExchanged);
  framework.host.dispatch.ops_per_expert_op = 2;
  // Forward has 10 ops of experts; backward has 7 kernels, at half the time, and 3 exchanges.
  EXPECT_NEAR((step(framework, kExchanged) - single) / (8 * 4 * 2e-3), 10 + 3.5 + 3, 1);
}

TEST(ExchangedRows, AreSortedBeforeAndAfterTheProducts) {
  Framework framework = waiting(false, false);
  framework.kernels.products.experts_apart = false;  // so that the device limits the step
  framework.parallelism.sorts_exchanged_rows = false;
  const double in_order = step(framework, kExchanged);
  framework.parallelism.sorts_exchanged_rows = true;
  const double sorted = step(framework, kExchanged) - in_order;
  // 8 layers, 4 micro-batches, two sorts in forward and two in backward: 4,096 tokens with 8 rows
  // of 2,048 in 16 bits are read and written.
  const Cluster cluster = preset_cluster("dgx-h100-80gb");
  const double bandwidth =
      cluster.device.memory_bandwidth.value() * cluster.efficiency->memory.bandwidth_fraction;
  const double sorts = 8 * 4 * 4 * (2.0 * 4096 * 8 * 2048 * 2) / bandwidth;
  EXPECT_GT(sorted, sorts);
  EXPECT_LT(sorted,
            1.25 * sorts);  // the busiest rank has 1.1 times as many, and weights are sorted
}

TEST(ExchangedRows, OfOneExpertOnEachRankNeedNoSort) {
  Framework framework = waiting(false, false);
  framework.parallelism.sorts_exchanged_rows = false;
  const double one = step(framework, kExchanged, 8), two = step(framework, kExchanged, 16);
  framework.parallelism.sorts_exchanged_rows = true;
  EXPECT_EQ(step(framework, kExchanged, 8), one);
  EXPECT_GT(step(framework, kExchanged, 16), two);
}

}  // namespace
}  // namespace plimsoll
