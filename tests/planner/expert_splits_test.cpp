// Expert splits: which dispatches are tried, against the bytes that their Programs move.
#include "planner/space/expert_splits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/traffic.h"
#include "passes/pipeline.h"
#include "planner/search/search.h"
#include "simulator/simulate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kDevices = 16;

/// Wide layers with 8 experts, of which a token chooses 4: tokens count more than their choices.
Job job_with_wide_experts() {
  Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests" / "expert-nano.json");
  job.hidden = 512;
  job.global_batch = 16;
  job.experts->count = 8;
  job.experts->chosen = 4;
  job.experts->load = 1;
  return job;
}

/// Returns the bytes that a rank sends for its experts in a step.
double bytes_for_experts(const Job& job, const Strategy& strategy) {
  const std::vector<Program> programs =
      lower({job, strategy, framework_by_name("megatron-lm")}, {}, Proof::none);
  double bytes = 0;
  for (const Traffic& traffic : step_traffic(programs.front(), 0)) {
    const AxisSet& axes = traffic.group.axes;
    if (axes.has(Axis::ep) || axes.has(Axis::etp)) bytes += double(traffic.sent.count());
  }
  return bytes;
}

Strategy with_experts_split(std::int64_t ep, std::int64_t etp) {
  Strategy strategy;
  strategy.mp = 2;
  strategy.dp = kDevices / 2;
  strategy.tokens.sequence_parallel = true;
  strategy.ep = ep;
  strategy.experts.etp = etp;
  return strategy;
}

bool tries_all_gather(const Job& job, const Strategy& strategy) {
  const Fixed fixed = {{"ep", ""}, {"etp", ""}};
  const auto splits =
      expert_splits(job, framework_by_name("megatron-lm"), strategy, fixed, Limits());
  return std::ranges::count(splits, ExpertDispatch::all_gather, FIELD(experts.dispatch)) > 0;
}

TEST(ExpertSplits, AllGatherIsTriedWhereItMovesNoMore) {
  const Job job = job_with_wide_experts();
  for (const std::int64_t ep : {2, 4, 8}) {
    for (const std::int64_t etp : {0, 2}) {
      Strategy strategy = with_experts_split(ep, etp);
      const double sent = bytes_for_experts(job, strategy);
      strategy.experts.dispatch = ExpertDispatch::all_gather;
      const double gathered = bytes_for_experts(job, strategy);
      // Weights, choices and numbers of rows are within 2 % of the bytes.
      EXPECT_EQ(gathered < 1.02 * sent, ep <= 4) << ep << " x " << etp << ": " << gathered / sent;
      strategy.experts.dispatch = ExpertDispatch::all_to_all;
      EXPECT_EQ(tries_all_gather(job, strategy), ep <= 4) << ep << " x " << etp;
    }
  }
}

TEST(ExpertSplits, MoreRowsAtOneRankLetAllGatherBeTried) {
  Job job = job_with_wide_experts();
  job.experts->load = 2;
  EXPECT_TRUE(tries_all_gather(job, with_experts_split(8, 0)));
  Strategy strategy = with_experts_split(8, 0);
  const double sent = bytes_for_experts(job, strategy);
  strategy.experts.dispatch = ExpertDispatch::all_gather;
  EXPECT_LT(bytes_for_experts(job, strategy), 1.02 * sent);
}

TEST(ExpertSplits, OfDeepSpeedAreSearchedForAndSimulated) {
  const Framework framework = framework_by_name("deepspeed");
  const CostModel costs(read_cluster("dgx-h100-80gb"), {}, framework);
  const Job job = read_job("mixtral-8x7b");
  const Target target(job, costs, 64);
  SearchRequest request{target};
  request.constraints.fixed = {{"ep", "8"}};
  request.threads = 1;
  const Plan plan = search(request);
  EXPECT_EQ(plan.strategy.ep, 8);
  EXPECT_EQ(plan.strategy.experts.dispatch, ExpertDispatch::all_to_all);
  EXPECT_TRUE(legal(framework, job, plan.strategy)) << strategy_summary(plan.strategy);
  bool shared = false;
  for (const Strategy& s : enumerate(job, framework, 64, request.constraints.fixed).legal) {
    shared |= s.cp > 1;
    EXPECT_TRUE(s.cp == 1 || s.sharding_stage < 3) << strategy_summary(s);
    EXPECT_TRUE(s.cp == 1 || s.tokens.context_exchange == ContextExchange::all_to_all);
  }
  EXPECT_TRUE(shared);
  // A rank with an eighth of the experts sends rows to the others, and pads none.
  const auto exchanged = [&](const char* more) {
    const std::string ranks = "sharding_degree=64,sharding_stage=2,recompute=full";
    const Strategy strategy = parse_strategy(ranks + more);
    const Simulation simulated =
        simulate(lower({job, strategy, framework}), costs, Folding::folded);
    EXPECT_GT(simulated.step_time, Seconds(0));
    double bytes = 0;
    for (const Traffic& traffic : step_traffic(lower({job, strategy, framework})[0], 0))
      if (traffic.group.axes.has(Axis::ep)) bytes += double(traffic.sent.count());
    return bytes;
  };
  const double even = double(job.sequence * job.hidden * 2) * 2 * 7 / 8;  // of a direction
  const double micro_batches = double(job.global_batch) / 64;
  const double directions = 2 + 2 + 2;  // forward, repeated and backward
  EXPECT_EQ(exchanged(""), 0);
  EXPECT_NEAR(exchanged(",ep=8") / (even * directions * double(job.layers) * micro_batches), 1.1,
              0.1);
}

}  // namespace
}  // namespace plimsoll
