// Where a step of many micro-batches goes, told from steps of few.
#include "planner/search/extended_breakdown.h"

#include <gtest/gtest.h>

#include <utility>

#include "planner/bounds/shorter_step.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

/// Two stages on two nodes. The first device has slow memory, so that its update takes long; the
/// second reckons `rate`, so that its micro-batches do.
Cluster two_kinds(FlopsPerSecond rate) {
  Cluster cluster = small_cluster();
  cluster.nodes = 2;
  cluster.devices_per_node = 1;
  cluster.device.kind = DeviceKind::gpu;
  cluster.levels.push_back({"network", 1, BytesPerSecond(5e9), Seconds(2e-6)});
  OtherDevices other{1, 1, cluster.device, std::nullopt};
  cluster.device.memory_bandwidth = BytesPerSecond(1e9);
  cluster.device.peak_fp32 = FlopsPerSecond(1e13);
  other.device.memory_bandwidth = BytesPerSecond(1e12);
  other.device.peak_fp32 = rate;
  cluster.other_devices = {other};
  return cluster;
}

struct Case {
  Evaluation few, all;
  std::optional<StepParts> extended;
};

Case case_of(FlopsPerSecond rate) {
  Job job = nano_job();
  job.hidden = 256;
  job.ffn_hidden = 1024;
  job.sequence = 128;
  job.global_batch = 400;
  const CostModel costs(two_kinds(rate), std::nullopt, framework_by_name("megatron-lm"));
  const Target target(job, costs, 2);
  const Strategy strategy = parse_strategy("pp=2");
  const auto shorter = with_fewer_micro_batches(target, strategy);
  Case found{evaluate(shorter->target, strategy), evaluate(target, strategy), std::nullopt};
  found.extended = extended_parts(target, strategy, found.all.prediction.step_time);
  return found;
}

TEST(ExtendedBreakdown, OfTheRankThatIsCriticalInAllSteps) {
  for (const auto& [rate, critical] : {std::pair{1e10, 1}, std::pair{1e11, 0}}) {
    const Case found = case_of(FlopsPerSecond(rate));
    EXPECT_EQ(found.few.critical_rank, critical);
    EXPECT_EQ(found.all.critical_rank, critical);
    ASSERT_TRUE(found.extended) << rate;
    EXPECT_EQ(*found.extended, found.all.parts) << rate;
  }
}

TEST(ExtendedBreakdown, NotWhereAnotherRankIsCriticalInTheLongStepOnly) {
  const Case found = case_of(FlopsPerSecond(2.4e10));
  ASSERT_EQ(found.few.critical_rank, 0);
  ASSERT_EQ(found.all.critical_rank, 1);
  EXPECT_FALSE(found.extended);
}

}  // namespace
}  // namespace plimsoll
