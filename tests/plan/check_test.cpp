// The checker: a plan of the planner passes; one tampered fixture per rule is refused by that rule
// alone.
#include "plan/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "plan/filling.h"
#include "plan/memory_interval.h"
#include "tests/plan/checked_plan.h"

namespace plimsoll {
namespace {

/// A change to a valid plan.
using Tampering = std::function<void(Plan&)>;

/// Repeats in timeline and front what the stages state, as a plan does that is wrong throughout.
void repeat_memory(Plan& plan) {
  OtherPlan& chosen = plan.pareto.front();
  chosen.peak = Bytes();
  chosen.taken = most_taken(plan);
  for (std::size_t i = 0; i < plan.prediction.stages.size(); ++i) {
    const StagePrediction& stage = plan.prediction.stages[i];
    chosen.peak = std::max(chosen.peak, stage.peak);
    RankMemory& memory = plan.timeline.memory.at(i);
    memory.by_role = stage.by_role;
    memory.arena = stage.arena;
    memory.peak = stage.peak;
  }
  plan.prediction.memory = memory_interval(plan);
}

/// A fastest plan that gains 1 %, for a choice that requires more.
FastestPlan fastest_plan(const Plan& plan) {
  FastestPlan fastest;
  fastest.strategy = plan.strategy;
  fastest.gain = 0.01;
  fastest.step_time = plan.prediction.step_time * (1 - fastest.gain);
  fastest.ratio = {0.99 / 1.25, 0.99 * 1.25, true};
  fastest.unusual = {UnusualChoice::tight_memory};
  return fastest;
}

/// The front without the plans that lost, whose memory would be compared with the chosen one's.
void keep_chosen_alone(Plan& plan) {
  plan.runners_up.clear();
  plan.pareto.resize(1, plan.pareto.front());
  repeat_memory(plan);
}

/// A framework of a file, of which no preset says what it is.
void rename_framework(Plan& plan) { plan.framework.name = "homemade"; }

void scale_rates(Plan& plan, double factor) {
  plan.prediction.peak_flops = plan.prediction.peak_flops * (1 / factor);
  plan.prediction.mfu *= factor;
  plan.prediction.hfu *= factor;
}

/// One entry per rule, by the rule's name: a plan that this rule alone refuses.
std::map<std::string, Tampering> tamperings() {
  std::map<std::string, Tampering> all;
  // The strategy. Programs cannot be rebuilt then, so rules about them stay silent.
  all["job-well-formed"] = [](Plan& p) { p.job.optimizer.learning_rate = -1; };
  all["strategy-legal"] = [](Plan& p) { p.strategy.pipeline.send_slots = 0; };
  // Programs and memory.
  all["input-digests"] = [](Plan& p) { p.cluster_digest = "abc"; };
  all["framework-known"] = [](Plan& p) { p.framework.sources.memory = "hearsay"; };
  all["framework-on-device"] = [](Plan& p) { p.device_kind = DeviceKind::gpu; };
  all["stage-count"] = [](Plan& p) { p.program_digests.push_back(digest("x")); };
  all["program-digests"] = [](Plan& p) { p.program_digests[1] = digest("x"); };
  all["peak-bytes"] = [](Plan& p) {
    StagePrediction& stage = p.prediction.stages[0];
    stage.peak = stage.allocated = stage.peak + Bytes(64);
    const auto all_of = [](const BytesByRole& by_role) {
      return std::accumulate(by_role.begin(), by_role.end(), Bytes());
    };
    auto& curve = p.timeline.memory[0].curve;
    const auto highest = std::ranges::max_element(
        curve, {}, [&](const MemoryPoint& point) { return all_of(point.by_role); });
    highest->by_role[std::size_t(TensorRole::saved)] += Bytes(64);
    repeat_memory(p);
  };
  all["peak-by-class"] = [](Plan& p) {
    auto& role = p.prediction.stages[1].by_role;
    role[std::size_t(TensorRole::gradient)] -= Bytes(64);
    role[std::size_t(TensorRole::saved)] += Bytes(64);
    repeat_memory(p);
  };
  all["arena-bytes"] = [](Plan& p) {
    StagePrediction& stage = p.prediction.stages[0];
    stage.arena = stage.reserved = stage.arena + Bytes(64);
    repeat_memory(p);
  };
  all["reserved-bytes"] = [](Plan& p) { p.prediction.stages[0].allocated += Bytes(64); };
  all["allocated-bytes"] = [](Plan& p) {
    rename_framework(p);
    p.framework.memory.allocator = paddle_allocator();
    p.prediction.stages[1].allocated = Bytes(1);
    keep_chosen_alone(p);
  };
  all["fits-capacity"] = [](Plan& p) {
    rename_framework(p);
    const StagePrediction& stage = p.prediction.stages[0];
    p.framework.memory.process.context = stage.capacity - stage.arena + Bytes(1);
    keep_chosen_alone(p);
  };
  all["one-capacity"] = [](Plan& p) { p.prediction.stages[1].capacity += Bytes(1); };
  // The prediction.
  all["step-time-positive"] = [](Plan& p) {
    p.prediction.step_time = p.pareto[0].step_time = Seconds(0);
    p.prediction.breakdown = {};
    for (Interval& interval : p.timeline.intervals)
      interval.posted = interval.begin = interval.end = Picoseconds();
    sort_intervals(p.timeline);
  };
  all["interval-ends"] = [](Plan& p) {
    std::swap(p.prediction.step_time_low, p.prediction.step_time_high);
  };
  all["tokens-per-second"] = [](Plan& p) { p.prediction.tokens_per_second *= 1.001; };
  all["mfu-range"] = [](Plan& p) { scale_rates(p, 2 / p.prediction.mfu); };
  all["mfu-formula"] = [](Plan& p) { p.prediction.mfu *= 0.999; };
  all["hfu-formula"] = [](Plan& p) { p.prediction.hfu *= 1.001; };
  all["peak-source"] = [](Plan& p) { p.prediction.peak_source.clear(); };
  all["breakdown-not-negative"] = [](Plan& p) {
    Breakdown& breakdown = p.prediction.breakdown;
    breakdown.bubble += breakdown.dispatch + Seconds(1e-6);
    breakdown.dispatch = Seconds(-1e-6);
  };
  all["breakdown-sums"] = [](Plan& p) { p.prediction.breakdown.forward += Seconds(1e-6); };
  all["recompute-as-chosen"] = [](Plan& p) {
    p = planned({{"pp", "2"}, {"dp", "2"}, {"recompute", "none"}}, 4);
    p.prediction.breakdown.recompute += Seconds(1e-6);
    p.prediction.breakdown.forward += Seconds(-1e-6);
  };
  all["provenance-shares"] = [](Plan& p) {
    p.prediction.share_by_provenance = {0, 0, 0, 0, 0, 0.5};
  };
  all["extrapolated-named"] = [](Plan& p) { p.prediction.extrapolated = {{"matmul", 0.1}}; };
  all["provenance-has-calibration"] = [](Plan& p) {
    p.prediction.share_by_provenance = {0.5, 0, 0, 0, 0, 0.5};  // half of it measured
  };
  all["timing-claim"] = [](Plan& p) {
    rename_framework(p);
    p.framework.facts.runs_on = RunsOn::nothing;
    p.oversubscribed = true;
    p.device_kind = DeviceKind::gpu;
  };
  // The timeline.
  all["timeline-ranks"] = [](Plan& p) { p.timeline.memory[1].rank = 4; };
  all["timeline-ordered"] = [](Plan& p) {  // computation stays in turn
    const auto pair =
        std::ranges::adjacent_find(p.timeline.intervals, [](const Interval& a, const Interval& b) {
          return a.rank == b.rank && a.begin < b.begin &&
                 (a.stream == Stream::compute) != (b.stream == Stream::compute);
        });
    std::iter_swap(pair, pair + 1);
  };
  all["intervals-forward"] = [](Plan& p) {
    Interval& interval = compute(p, 0, 0);
    interval.end = interval.begin - Picoseconds(1);
  };
  all["timeline-from-zero"] = [](Plan& p) { p.timeline.memory[0].curve[0].time = Picoseconds(-1); };
  all["timeline-level"] = [](Plan& p) { compute(p, 0, 0).kind.reset(); };
  all["timeline-complete"] = [](Plan& p) { p.timeline.intervals.pop_back(); };
  all["communication-posted"] = [](Plan& p) {
    compute(p, 0, 3).posted = compute(p, 0, 3).begin - Picoseconds(1);
  };
  all["compute-in-turn"] = [](Plan& p) {
    compute(p, 0, 2).end = compute(p, 0, 3).begin + Picoseconds(1);
  };
  all["compute-fits-step"] = [](Plan& p) {
    Interval* last = nullptr;
    for (Interval& interval : p.timeline.intervals) {
      if (interval.stream == Stream::compute) last = &interval;
    }
    last->end = last->end + to_picoseconds(p.prediction.step_time * 2);
  };
  all["timeline-routines"] = [](Plan& p) { compute(p, 0, 0).routine = "siesta"; };
  all["timeline-memory"] = [](Plan& p) { p.timeline.memory[0].arena += Bytes(64); };
  all["memory-curve"] = [](Plan& p) { p.timeline.memory[0].curve.clear(); };
  all["timeline-resolution"] = [](Plan& p) {  // two ops as one
    Interval& first = compute(p, 0, 3);
    const Interval second = compute(p, 0, 4);
    first.ops = 2;
    first.end = second.end;
    p.timeline.intervals.erase(std::ranges::find(p.timeline.intervals, second));
  };
  all["rank-times"] = [](Plan& p) { p.rank_times.push_back(times_of(p.timeline, 0)); };
  // The search.
  all["search-counts"] = [](Plan& p) { p.search.space += 1; };
  all["search-proven"] = [](Plan& p) { p.search.gap = 0.01; };
  all["infeasible-count"] = [](Plan& p) { p.search.infeasible = -1; };
  all["runners-up-counted"] = [](Plan& p) {
    p.search.evaluated = 1;
    p.search.bounded = {};
    p.search.pruned = {{"everything else", p.search.space - 1}};
  };
  all["runners-up-fit"] = [](Plan& p) {
    p.runners_up[0] = loser(p);
    p.runners_up[0].taken = p.prediction.stages[0].capacity - p.reserve + Bytes(1);
  };
  all["runners-up-distinct"] = [](Plan& p) {
    p.runners_up[0] = loser(p);
    p.runners_up[0].strategy = p.strategy;
  };
  all["runners-up-lose"] = [](Plan& p) {  // as fast with a smaller peak, but no less of the device
    p.runners_up[0] = loser(p);
    retime(p, p.runners_up[0], p.prediction.step_time);
    p.runners_up[0].peak = Bytes(64);
    p.runners_up[0].taken = p.pareto[0].taken;
  };
  all["unusual"] = [](Plan& p) { p.runners_up.back().unusual = {UnusualChoice::context_split}; };
  all["fastest"] = [](Plan& p) {
    p.fastest = fastest_plan(p);
    p.fastest->gain = 0.02;
  };
  all["others-legal"] = [](Plan& p) {
    p.fastest = fastest_plan(p);
    p.fastest->strategy.mp = 3;
  };
  all["memory-interval"] = [](Plan& p) { p.prediction.memory.high += Bytes(1); };
  all["ties"] = [](Plan& p) { p.runners_up[0].ratio.low *= 0.999; };
  all["runners-up-ordered"] = [](Plan& p) {
    p.runners_up[0] = loser(p);
    p.runners_up[0].step_time = p.prediction.step_time * 16;
    p.runners_up[0].ratio = {8, 32, false};
  };
  all["runners-up-terms"] = [](Plan& p) {
    p.runners_up[0] = loser(p);
    p.runners_up[0].term_time = Seconds();
  };
  all["pareto-first"] = [](Plan& p) { p.pareto[0].strategy.pipeline.send_slots = 7; };
  all["pareto-falls"] = [](Plan& p) {
    p.pareto.push_back(p.pareto.back());
    p.pareto.back().strategy.pipeline.send_slots = 7;
    p.pareto.back().taken += Bytes(64);
  };
  all["pareto-distinct"] = [](Plan& p) {
    p.pareto.push_back(p.pareto.back());
    p.pareto.back().step_time = p.pareto.back().step_time * 1.0001;
    p.pareto.back().ratio.low *= 1.0001;
    p.pareto.back().ratio.high *= 1.0001;
    p.pareto.back().taken = Bytes(64);
  };
  all["pareto-dominates"] = [](Plan& p) {
    p.runners_up[0] = loser(p);
    retime(p, p.runners_up[0], p.pareto.back().step_time);
    p.runners_up[0].taken = Bytes(64);
  };
  return all;
}

TEST(Check, AcceptsWhatThePlannerEmits) {
  EXPECT_EQ(text_of(check(valid_plan())), "");
  for (std::int64_t devices : {1, 2, 4}) EXPECT_EQ(text_of(check(planned({}, devices))), "");
}

TEST(Check, AcceptsAPlanThatWentThroughItsFile) {
  EXPECT_EQ(text_of(check(parse_plan(plan_text(valid_plan()), "FILE"))), "");
}

TEST(Check, HasATamperedFixtureForEveryRule) {
  std::set<std::string> named, tampered;
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(named.insert(std::string(rule.name)).second) << rule.name;
    EXPECT_FALSE(rule.sentence.empty()) << rule.name;
  }
  for (const auto& [rule, tampering] : tamperings()) tampered.insert(rule);
  EXPECT_EQ(named, tampered);
  EXPECT_GE(named.size(), 15u);
}

TEST(Check, EveryRuleAloneRefusesItsFixture) {
  ASSERT_FALSE(valid_plan().runners_up.empty());
  for (const auto& [rule, tampering] : tamperings()) {
    Plan plan = valid_plan();
    tampering(plan);
    const std::vector<Violation> violations = check(plan);
    ASSERT_EQ(violations.size(), 1u) << rule << "\n" << text_of(violations);
    EXPECT_EQ(violations[0].rule, rule) << text_of(violations);
    EXPECT_FALSE(violations[0].message.empty()) << rule;
  }
}

TEST(Check, SeesEverySideOfARule) {
  using Names = std::set<std::string>;
  // A framework of a file, which the plan holds whole.
  EXPECT_EQ(broken_by([](Plan& p) { p.framework.name = "homemade"; }), Names{});
  EXPECT_EQ(broken_by([](Plan& p) {  // a byte less than the arena needs is left beside the context
              const StagePrediction& stage = p.prediction.stages[0];
              p.framework.memory.process.context = stage.capacity - stage.arena + Bytes(1);
            }),
            (Names{"fits-capacity", "framework-known", "memory-interval", "pareto-first"}));
  EXPECT_EQ(broken_by([](Plan& p) {  // nothing but the programs says what an allocator holds
              p.framework.memory.allocator = paddle_allocator();
              p.prediction.stages[1].allocated = p.prediction.stages[1].reserved = Bytes(1);
            }),
            (Names{"allocated-bytes", "framework-known", "memory-interval", "pareto-first"}));
  EXPECT_EQ(broken_by([](Plan& p) {
              p.framework.memory.allocator = paddle_allocator();
              p.prediction.stages[1].reserved = p.prediction.stages[1].allocated - Bytes(1);
            }),
            (Names{"reserved-bytes", "framework-known", "memory-interval", "pareto-first"}));
  EXPECT_EQ(broken_by([](Plan& p) {  // an allocator may hold less than the program's peak
              p.runners_up[0].peak = p.prediction.stages[0].capacity + Bytes(1);
            })
                .count("runners-up-fit"),
            0u);
  EXPECT_EQ(broken_by([](Plan& p) { p.runners_up[0].taken = Bytes(0); }).count("runners-up-fit"),
            1u);
  EXPECT_EQ(broken_by([](Plan& p) {  // what was kept free is no room
              p.reserve = p.prediction.stages[0].capacity - p.prediction.stages[0].reserved;
              p.reserve += Bytes(1);
            })
                .count("fits-capacity"),
            1u);
  EXPECT_TRUE(breaks("others-legal", [](Plan& p) { p.pareto.back().strategy.mp = 3; }));
  EXPECT_TRUE(breaks("others-legal", [](Plan& p) { p.runners_up.back().strategy.mp = 3; }));
  EXPECT_EQ(
      broken_by([](Plan& p) {  // what the framework has no optimizer for
        p.framework.can.ranks.sharding_stages = p.framework.can.ranks.pipeline_sharding_stages = {};
        for (Strategy* strategy : {&p.runners_up.back().strategy, &p.pareto.back().strategy}) {
          *strategy = p.strategy;
          strategy->gradients.overlap = strategy->gathers.overlap = false;
          strategy->dp = 1;
          strategy->sharding_degree = 2;
          strategy->sharding_stage = 1;
        }
      }),
      (Names{"others-legal", "framework-known"}));
  EXPECT_EQ(broken_by([](Plan& p) { p.search.proven = false; }), Names{"search-proven"});
  EXPECT_EQ(broken_by([](Plan& p) { p.search.bounded[0] += 1; }), Names{"search-counts"});
  EXPECT_EQ(broken_by([](Plan& p) { p.search.infeasible = p.search.evaluated - 1; }),
            Names{"runners-up-counted"});  // nothing but the chosen plan fits
  EXPECT_EQ(broken_by([](Plan& p) { p.pareto.clear(); }), Names{"pareto-first"});
  EXPECT_EQ(broken_by([](Plan& p) {  // a saving that is too small to be shown
              OtherPlan next = p.pareto.back();
              next.strategy.pipeline.send_slots = 7;
              next.taken = Bytes(std::int64_t(double(next.taken.count()) * 0.96));
              p.pareto.push_back(next);
            }),
            Names{"pareto-falls"});
  EXPECT_EQ(broken_by([](Plan& p) {  // a runner-up that takes hardly less may be off the front
              retime(p, p.runners_up[0], p.prediction.step_time);
              p.runners_up[0].peak = p.pareto[0].peak;
              p.runners_up[0].taken = Bytes(p.pareto[0].taken.count() * 96 / 100);
            }),
            Names{});
  EXPECT_EQ(broken_by([](Plan& p) { p.pareto[0].ratio.tied = false; }), Names{"ties"});
  EXPECT_EQ(broken_by([](Plan& p) {
              StepRatio& ratio = p.runners_up[0].ratio;
              std::swap(ratio.low, ratio.high);
            }),
            Names{"ties"});
  EXPECT_EQ(broken_by([](Plan& p) { p.fastest = fastest_plan(p); }), Names{});
  EXPECT_EQ(broken_by([](Plan& p) {  // more is gained than the choice requires
              p.fastest = fastest_plan(p);
              p.fastest->gain = 0.6;
              p.fastest->step_time = p.prediction.step_time * 0.4;
              p.fastest->ratio = {0.32, 0.5, false};
            }),
            Names{"fastest"});
  EXPECT_EQ(broken_by([](Plan& p) {  // a runner-up that is faster yet
              p.fastest = fastest_plan(p);
              retime(p, p.runners_up[0], p.prediction.step_time * 0.985);
              p.runners_up[0].unusual = {UnusualChoice::tight_memory};
            })
                .count("fastest"),
            1u);
  EXPECT_EQ(broken_by([](Plan& p) { p.runners_up[0].peak = Bytes(0); }).count("runners-up-fit"),
            1u);
  EXPECT_EQ(broken_by([](Plan& p) {
              compute(p, 0, 0).posted = Picoseconds(-5);
            }).count("timeline-from-zero"),
            1u);
  EXPECT_EQ(broken_by([](Plan& p) {  // the whole of rank 2, which stands for stage 1
              std::erase_if(p.timeline.intervals, [](const Interval& i) { return i.rank == 2; });
            }),
            Names{"timeline-complete"});
  EXPECT_EQ(broken_by([](Plan& p) {
              p.calibration_digest = digest("k");
              p.prediction.share_by_provenance = {0.5, 0, 0, 0, 0, 0.5};  // half of it measured
            }),
            Names{});
  for (const std::size_t label : {2u, 4u}) {  // fitted, typical
    EXPECT_EQ(broken_by([&](Plan& p) {
                p.prediction.share_by_provenance = {};
                p.prediction.share_by_provenance[label] = p.prediction.share_by_provenance[5] = 0.5;
              }),
              Names{"provenance-has-calibration"});
  }
  EXPECT_EQ(broken_by([](Plan& p) { p.calibration_rest_digest = digest("r"); }),
            Names{"input-digests"});  // of the rest of nothing
  EXPECT_EQ(broken_by([](Plan& p) {
              p.calibration_digest = digest("k");
              p.calibration_rest_digest = "r";
            }),
            Names{"input-digests"});
}

TEST(Check, SaysWhatWasFoundAndWhatIsRight) {
  Plan plan = valid_plan();
  const std::int64_t right = plan.prediction.stages[0].peak.count();
  plan.prediction.stages[0].peak += Bytes(64);
  const std::vector<Violation> violations = check(plan);
  const auto peak = std::find_if(violations.begin(), violations.end(),
                                 [](const Violation& v) { return v.rule == "peak-bytes"; });
  ASSERT_NE(peak, violations.end());
  EXPECT_EQ(peak->message, "stage 0: peak of " + std::to_string(right + 64) +
                               " bytes stated, its program peaks at " + std::to_string(right));
}

TEST(Check, NamesTheStageWhoseProgramDiffers) {
  Plan plan = valid_plan();
  plan.job.optimizer.weight_decay = 0.2;  // the plan of another job, otherwise consistent
  const std::vector<Violation> violations = check(plan);
  ASSERT_EQ(violations.size(), 1u) << text_of(violations);
  EXPECT_EQ(violations[0].rule, "program-digests");
  EXPECT_EQ(violations[0].message.find("stage 0: "), 0u);
}

}  // namespace
}  // namespace plimsoll
