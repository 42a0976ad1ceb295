// Limits: the limited space is the free one without what the limits leave out, and so is the best.
#include "planner/space/limits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/cli/flags.h"
#include "planner/explore/explore.h"
#include "planner/search/search.h"
#include "tests/planner/explore_all.h"
#include "tests/planner/random_problems.h"

namespace plimsoll {
namespace {

/// Keys whose limits only leave strategies out. Others let another value stand for the first one.
constexpr std::string_view kKeys[] = {"mp",
                                      "pp",
                                      "dp",
                                      "cp",
                                      "micro_batch",
                                      "recompute",
                                      "schedule",
                                      "sharding_degree",
                                      "sharding_stage",
                                      "virtual_stages",
                                      "recompute_layers",
                                      "sequence_parallel",
                                      "prefetch_depth",
                                      "keep_gathered",
                                      "split_boundary"};

bool has_order(std::string_view key) {
  const std::string text = field_text(Strategy(), key);
  return text.find_first_not_of("0123456789") == std::string::npos;
}

/// Whether a strategy keeps a limit, by the texts of its fields alone.
bool keeps(const Strategy& strategy, const Limit& limit) {
  const auto field = [&](std::string_view key) { return field_text(strategy, key); };
  const bool one_stage = field("pp") == "1", one_rank = field("mp") == "1";
  const std::string& key = limit.key;
  if (one_stage && (key == "schedule" || key == "split_boundary")) return true;
  if (one_rank && (key == "sequence_parallel" || key == "split_boundary")) return true;
  if (field("sharding_stage") != "3" && (key == "prefetch_depth" || key == "keep_gathered"))
    return true;
  std::string value = field(key);
  const bool repeats = field("recompute") != "none";
  if (key == "recompute_layers" && limit.kind != LimitKind::excluded)
    value = !repeats ? "0" : value == "0" ? "999999" : value;
  if (key == "recompute_layers" && limit.kind == LimitKind::excluded && !repeats) return true;
  if (limit.kind == LimitKind::excluded) return value != limit.value;
  const int number = std::stoi(value), bound = std::stoi(limit.value);
  return limit.kind == LimitKind::most ? number <= bound : number >= bound;
}

bool keeps_all(const Strategy& strategy, const Limits& limits) {
  return std::ranges::all_of(limits, [&](const Limit& limit) { return keeps(strategy, limit); });
}

/// Up to three limits, with values of some strategies of the space.
Limits random_limits(const StrategyList& legal, std::mt19937_64& random) {
  Limits limits;
  for (std::size_t i = 0; i < 1 + random() % 3; ++i) {
    const Strategy drawn = legal[random() % legal.size()];
    const std::string_view key = kKeys[random() % std::size(kKeys)];
    const auto kind = has_order(key) ? LimitKind(random() % 3) : LimitKind::excluded;
    Limits more = limits;
    more.push_back(make_limit(kind, key, field_text(drawn, key)));
    if (!contradiction({}, more)) limits = std::move(more);
  }
  return limits;
}

Problem small_problem(std::mt19937_64& random, std::int64_t most_devices) {
  Problem problem = random_problem(random);
  if (problem.framework.name == "bundled") problem.cluster.device.kind = DeviceKind::cpu_core;
  problem.devices = std::min(problem.devices, most_devices);
  return problem;
}

TEST(Limits, LeaveOutOfTheSpaceWhatTheyExclude) {
  std::mt19937_64 random(21);
  std::int64_t left_out = 0, kept = 0;
  const int problems = problems_to_draw(80);
  for (int i = 0; i < problems; ++i) {
    const Problem problem = small_problem(random, 8);
    SearchRequest request{problem.target()};
    const Space all = enumerate(request);
    if (all.legal.empty()) continue;
    request.constraints.limits = random_limits(all.legal, random);
    std::vector<std::string> expected, found;
    for (const Strategy& strategy : all.legal) {
      if (keeps_all(strategy, request.constraints.limits))
        expected.push_back(strategy_summary(strategy));
    }
    const Space limited = enumerate(request);
    for (const Strategy& strategy : limited.legal) found.push_back(strategy_summary(strategy));
    std::string limits;
    for (const Limit& limit : request.constraints.limits) limits += limit_text(limit) + " ";
    ASSERT_EQ(found, expected) << limits << describe(problem);
    EXPECT_LE(limited.enumerated, all.enumerated);
    EXPECT_EQ(found.empty() && limited.reason.empty(), false) << limits;
    left_out += found.size() < all.legal.size();
    kept += !found.empty();
  }
  EXPECT_GT(left_out, problems / 2);
  EXPECT_GT(kept, problems / 2);
}

/// Larger spaces take too long to evaluate whole.
constexpr std::size_t kMostEvaluated = 1000;

/// The best of the candidates that keep the limits.
std::optional<Candidate> best_of(const std::vector<Candidate>& candidates, const Limits& limits) {
  std::optional<Candidate> best;
  for (const Candidate& candidate : candidates) {
    if (!feasible(candidate) || !keeps_all(candidate.strategy, limits)) continue;
    if (!best || better(candidate, *best)) best = candidate;
  }
  return best;
}

TEST(Limits, TheBestWithinThemIsTheBestOfAllThatKeepThem) {
  std::mt19937_64 random(22);
  int compared = 0, slower = 0;
  const int problems = problems_to_draw(30);
  for (int i = 0; i < problems; ++i) {
    const Problem problem = small_problem(random, 4);
    SearchRequest request{problem.target()};
    const Space all = enumerate(request);
    if (all.legal.empty() || all.legal.size() > kMostEvaluated) continue;
    const Limits limits = random_limits(all.legal, random);
    const std::vector<Candidate> candidates =
        explore_all(request, all, Bounds(request.target)).candidates;
    const std::optional<Candidate> free = best_of(candidates, {});
    const std::optional<Candidate> expected = best_of(candidates, limits);
    request.constraints.limits = limits;
    const Space space = enumerate(request);
    if (space.legal.empty()) {
      EXPECT_FALSE(expected) << describe(problem);
      continue;
    }
    const Bounds bounds(request.target);
    const Explored explored = branch_and_bound(request, space, bounds);
    const std::vector<std::size_t> best = best_plans(explored.candidates);
    ASSERT_EQ(best.empty(), !expected) << describe(problem);
    if (!expected) continue;
    const Candidate& found = explored.candidates[best.front()];
    EXPECT_EQ(strategy_summary(found.strategy), strategy_summary(expected->strategy))
        << describe(problem);
    EXPECT_EQ(found.prediction.step_time, expected->prediction.step_time);
    ++compared;
    slower += found.prediction.step_time > free->prediction.step_time;
  }
  EXPECT_GT(compared, problems / 10);
  EXPECT_GT(slower, 0);
  fmt::print("{} compared, {} of them slower than without limits\n", compared, slower);
}

/// Cuts by cost lie beside the space; they keep the limits, too.
TEST(Limits, HoldForPlansThatAreCutByCost) {
  std::mt19937_64 random(23);
  int planned = 0;
  for (int i = 0; i < problems_to_draw(20); ++i) {
    const Problem problem = small_problem(random, 4);
    SearchRequest request{problem.target()};
    request.inputs.cluster_digest = std::string(64, '0');
    if (problem.calibration) request.inputs.calibration_digest = std::string(64, '1');
    const Space all = enumerate(request);
    if (all.legal.empty()) continue;
    request.constraints.limits = random_limits(all.legal, random);
    if (i % 2 == 0)
      request.constraints.limits.push_back(make_limit(LimitKind::excluded, "recompute", "none"));
    try {
      const Plan plan = search(request);
      EXPECT_TRUE(keeps_all(plan.strategy, request.constraints.limits))
          << strategy_summary(plan.strategy);
      for (const RunnerUp& one : plan.runners_up)
        EXPECT_TRUE(keeps_all(one.strategy, request.constraints.limits))
            << strategy_summary(one.strategy);
      ++planned;
    } catch (const InfeasibleError&) {
    }
  }
  EXPECT_GT(planned, 3);
}

TEST(Limits, AnotherOrderOrBucketStandsForOneThatIsExcluded) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  const Framework framework = framework_by_name("megatron-lm");
  const Limits most = {make_limit(LimitKind::most, "grad_bucket_bytes", "4 MiB")};
  const Space all = enumerate(job, framework, 4, {}),
              small = enumerate(job, framework, 4, {}, {}, most);
  EXPECT_LT(small.legal.size(), all.legal.size());
  for (const Strategy& strategy : small.legal)
    EXPECT_LE(strategy.gradients.bucket_bytes, Bytes(std::int64_t{4} << 20));
  const std::string usual = field_text(Strategy(), "rank_order");
  const Space other =
      enumerate(job, framework, 4, {}, {}, {make_limit(LimitKind::excluded, "rank_order", usual)});
  EXPECT_FALSE(other.legal.empty());
  for (const Strategy& strategy : other.legal) EXPECT_NE(field_text(strategy, "rank_order"), usual);
}

std::string refusal(const HeldOptions& options) {
  try {
    parse_held(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Limits, ThatCannotBeKeptAreRefusedByName) {
  EXPECT_EQ(refusal({{"mp=4"}, {"mp=2"}, {}, {}}), "--fix mp=4 and --max mp=2 exclude each other");
  EXPECT_EQ(refusal({{"pp=2"}, {}, {}, {"pp=2"}}),
            "--fix pp=2 and --exclude pp=2 exclude each other");
  EXPECT_EQ(refusal({{}, {"mp=2"}, {"mp=4"}, {}}), "--min mp=4 and --max mp=2 leave no value");
  EXPECT_EQ(refusal({{}, {"mp=2", "mp=4"}, {}, {}}), "--max mp is given twice");
  EXPECT_EQ(refusal({{}, {"mq=2"}, {}, {}}),
            "--max mq=2: unknown strategy key \"mq\"; did you mean \"mp\"?");
  EXPECT_EQ(refusal({{}, {}, {}, {"mp=x"}}),
            "--exclude mp=x: mp=x: an integer from 1 to 4194304 is required");
  EXPECT_EQ(refusal({{}, {"recompute=full"}, {}, {}}),
            "--max recompute=full: values of recompute have no order; --exclude takes one out");
  EXPECT_EQ(refusal({{}, {}, {"send_slots=2"}, {}}),
            "--min send_slots=2: no search varies this key; --fix sets it");
  EXPECT_EQ(refusal({{}, {}, {}, {"layer_split=even"}}),
            "--exclude layer_split=even: it is chosen by stage, after the search; --fix sets it");
  EXPECT_EQ(refusal({{}, {"mp"}, {}, {}}), "--max mp: expected KEY=VALUE");
  EXPECT_EQ(refusal({{"mp=2"}, {"mp=2"}, {"mp=2", "pp=1"}, {"cp=2", "cp=4"}}), "");
}

}  // namespace
}  // namespace plimsoll
