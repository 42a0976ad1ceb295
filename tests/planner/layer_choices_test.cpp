// Layer choices: cuts by stage are legal, never make a plan slower, and do make some faster.
#include "planner/layers/layer_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/search/search.h"
#include "predict/evaluate.h"
#include "tests/planner/random_problems.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

SearchRequest fastest_request_of(Target target) {
  SearchRequest request{std::move(target)};
  request.fastest = true;
  request.inputs.cluster_digest = std::string(64, '0');
  return request;
}

/// The best plan of the space alone.
Plan without_choices(SearchRequest request) {
  request.constraints.fixed.emplace_back("layer_split", "even");
  return search(request);
}

TEST(LayerChoices, NeverGiveASlowerPlan) {
  std::mt19937_64 random(3);
  int faster = 0;
  for (int i = 0; i < 60; ++i) {
    Problem problem = random_problem(random);
    if (problem.framework.name == "bundled") problem.cluster.device.kind = DeviceKind::cpu_core;
    problem.devices = std::min<std::int64_t>(problem.devices, 6);
    problem.job.vocab *= 16;  // a last stage that has more to do makes an uneven cut pay
    SearchRequest request = fastest_request_of(problem.target());
    if (problem.calibration) request.inputs.calibration_digest = std::string(64, '1');
    // Interleaved pipelines are cut evenly, and beat others; of others there are more then.
    request.constraints.fixed = {{"virtual_stages", "1"}, {"schedule", "1f1b"}, {"pp", "2"}};
    try {
      const Plan plan = search(request);
      const Plan even = without_choices(request);
      EXPECT_LE(plan.prediction.step_time, even.prediction.step_time) << describe(problem);
      faster += plan.prediction.step_time < even.prediction.step_time;
      EXPECT_TRUE(legal(request.target, plan.strategy)) << describe(problem);
    } catch (const InfeasibleError&) {  // nothing fits or ends in time
    }
  }
  RecordProperty("faster", faster);
  EXPECT_GT(faster, 0);
}

/// A PresetCase is a preset job on 8 or more GPUs of 40 or 80 GB.
struct PresetCase {
  std::string job;
  std::int64_t global_batch = 1;
  std::string cluster, framework;
  std::int64_t devices = 1;
  Bytes reserve{};
};

SearchRequest fastest_request_of(const PresetCase& of) {
  Job job = read_job(of.job);
  job.global_batch = of.global_batch;
  const CostModel costs(read_cluster(of.cluster), std::nullopt, framework_by_name(of.framework));
  SearchRequest request = fastest_request_of(Target(job, costs, of.devices, of.reserve));
  request.constraints.fixed = {{"virtual_stages", "1"},
                               {"schedule", "1f1b"},
                               {"sharding_stage", "1"},
                               {"cp", "1"},
                               {"pp", "4"},
                               {"micro_batch", "1"}};
  return request;
}

TEST(LayerChoices, AFullStageRecomputesMore) {
  // The reserve is less than stage 0 wants beside its layers.
  SearchRequest seven = fastest_request_of(
      {"llama2-7b", 64, "dgx-a100-40gb", "bundled-cuda", 8, parse_bytes("5 GiB")});
  const Plan plan = search(seven);
  ASSERT_FALSE(plan.strategy.recomputed.list.empty()) << strategy_summary(plan.strategy);
  const std::int64_t of_stage_0 = layers_per_part(seven.target.job, plan.strategy).front();
  EXPECT_LT(plan.strategy.recomputed.list.back(), of_stage_0);
  EXPECT_LT(plan.prediction.step_time * 1.02, without_choices(seven).prediction.step_time);
  seven.threads = 2;
  EXPECT_EQ(search(seven).strategy, plan.strategy);
}

TEST(LayerChoices, StagesInFrontHaveFewerLayers) {
  SearchRequest seventy =
      fastest_request_of({"llama3-70b", 256, "dgx-h100-80gb", "megatron-lm", 64});
  seventy.constraints.fixed.emplace_back("mp", "4");
  seventy.constraints.fixed.emplace_back("sequence_parallel", "true");
  const Plan plan = search(seventy);
  const std::vector<std::int64_t>& split = plan.strategy.pipeline.layer_split;
  ASSERT_EQ(split.size(), 4u) << strategy_summary(plan.strategy);
  EXPECT_LT(split[0], split[1]);
  EXPECT_LT(plan.prediction.step_time, without_choices(seventy).prediction.step_time);
}

TEST(LayerChoices, AnUnevenCutMayFitWithoutRecompute) {
  SearchRequest free = fastest_request_of({"llama3-70b", 256, "dgx-h100-80gb", "megatron-lm", 64});
  free.constraints.fixed.emplace_back("mp", "4");
  SearchRequest even = free, uneven = free;
  even.constraints.fixed.insert(even.constraints.fixed.end(),
                                {{"recompute", "none"}, {"layer_split", "even"}});
  EXPECT_THROW(search(even), InfeasibleError);
  uneven.constraints.fixed.insert(uneven.constraints.fixed.end(),
                                  {{"recompute", "none"}, {"layer_split", "18+21+21+20"}});
  EXPECT_LE(search(free).prediction.step_time, search(uneven).prediction.step_time);
}

TEST(LayerChoices, AFrameworkHasThemOrNot) {
  EXPECT_TRUE(layer_freedom(bundled_framework(), {}).by_stage);
  const LayerFreedom megatron = layer_freedom(framework_by_name("megatron-lm"), {});
  EXPECT_TRUE(megatron.cuts);
  EXPECT_FALSE(megatron.by_stage);
  EXPECT_FALSE(layer_freedom(framework_by_name("megatron-lm-2022"), {}).cuts);
  for (const char* key : {"layer_split", "recompute_list", "loss_as_layers"}) {
    const LayerFreedom held = layer_freedom(bundled_framework(), {{key, "1"}});
    EXPECT_FALSE(held.cuts || held.by_stage) << key;
  }
}

}  // namespace
}  // namespace plimsoll
