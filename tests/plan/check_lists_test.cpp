// The checker: timelines and lists of plans at the border of each rule, on both sides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/filling.h"
#include "tests/plan/checked_plan.h"

namespace plimsoll {
namespace {

TEST(CheckLists, CountsOfASearchAreOfItsSpace) {
  EXPECT_FALSE(breaks("search-counts", [](Plan& p) { p.search.pruned.push_back({"nothing", 0}); }));
  EXPECT_TRUE(breaks("search-counts", [](Plan& p) { p.search.pruned.push_back({"", 0}); }));
  EXPECT_TRUE(breaks("search-counts", [](Plan& p) {  // sums are right
    p.search.pruned.push_back({"less than nothing", -1});
    p.search.pruned.push_back({"one", 1});
  }));
  EXPECT_TRUE(breaks("search-counts", [](Plan& p) {
    p.search.bounded[0] -= p.search.bounded[0] + 1;
    p.search.bounded[1] += 1 + sum_of(p.search.bounded);
  }));
  EXPECT_TRUE(breaks("search-counts", [](Plan& p) {
    p.search.pruned.push_back({"more than there are", p.search.space + 1});
    p.search.unexplored = -p.search.space - 1;
  }));
  EXPECT_TRUE(breaks("search-counts", [](Plan& p) {
    p.search.pruned.push_back({"as one evaluated", p.search.evaluated});
    p.search.evaluated = 0;
  }));
  EXPECT_TRUE(breaks("search-counts", [](Plan& p) {  // as many are pruned
    p.search.pruned.push_back({"one", 1});
    p.search.unexplored = -1;
  }));
  EXPECT_FALSE(breaks("search-counts", [](Plan& p) {
    p.search.unexplored = 1;
    p.search.space += 1;
  }));
}

TEST(CheckLists, ASearchIsProvenWhereNothingIsLeft) {
  const auto ended = [](bool proven, std::int64_t unexplored, double gap) {
    return breaks("search-proven", [&](Plan& p) {
      p.search.proven = proven;
      p.search.unexplored = unexplored;
      p.search.gap = gap;
    });
  };
  EXPECT_FALSE(ended(true, 0, 0));
  EXPECT_TRUE(ended(true, 1, 0));
  EXPECT_FALSE(ended(false, 1, 0));
  EXPECT_FALSE(ended(false, 1, 0.1));
  EXPECT_TRUE(ended(false, 1, -0.1));
  EXPECT_TRUE(ended(true, 0, 0.1));
}

TEST(CheckLists, SomethingEvaluatedFits) {
  const auto infeasible = [](std::int64_t of_evaluated) {
    return breaks("infeasible-count",
                  [&](Plan& p) { p.search.infeasible = p.search.evaluated - of_evaluated; });
  };
  EXPECT_TRUE(infeasible(0));
  EXPECT_FALSE(infeasible(1));
  const auto shown = [](std::int64_t fit_beside) {
    return breaks("runners-up-counted", [&](Plan& p) {
      p.search.infeasible = p.search.evaluated - std::int64_t(p.runners_up.size()) - 1 - fit_beside;
    });
  };
  EXPECT_FALSE(shown(0));
  EXPECT_TRUE(shown(-1));
}

TEST(CheckLists, RunnersUpLeaveTheReserve) {
  const auto taken = [](std::int64_t more, bool mixed) {
    return breaks("runners-up-fit", [&](Plan& p) {
      p.mixed_devices = mixed;
      p.reserve = Bytes(4096);
      p.runners_up[0].taken = p.prediction.stages[0].capacity - p.reserve + Bytes(more);
    });
  };
  EXPECT_FALSE(taken(0, false));
  EXPECT_TRUE(taken(1, false));
  EXPECT_FALSE(taken(1, true));
}

TEST(CheckLists, RunnersUpAreNoBetter) {
  const Bytes largest = valid_plan().pareto[0].peak;
  const auto better = [](double step, Bytes peak) {
    return breaks("runners-up-lose", [&](Plan& p) {
      retime(p, p.runners_up[0], p.prediction.step_time * step);
      p.runners_up[0].peak = peak;
    });
  };
  EXPECT_TRUE(better(0.99, largest + Bytes(64)));
  EXPECT_FALSE(better(1, largest));
  EXPECT_TRUE(better(1, largest - Bytes(1)));
  EXPECT_FALSE(better(1.01, largest - Bytes(1)));
}

TEST(CheckLists, PlansAreTiedWhereTheRatioMayBeOne) {
  const auto tied = [](double low, double high, bool tied) {
    return breaks("ties", [&](Plan& p) {
      p.runners_up[0].step_time = p.prediction.step_time * std::sqrt(low * high);
      p.runners_up[0].ratio = {low, high, tied};
    });
  };
  EXPECT_FALSE(tied(1, 1, true));
  EXPECT_FALSE(tied(1, 4, true));
  EXPECT_FALSE(tied(0.25, 1, true));
  EXPECT_TRUE(tied(1, 4, false));
  EXPECT_TRUE(tied(1.01, 4, true));
  EXPECT_FALSE(tied(1.01, 4, false));
  EXPECT_TRUE(tied(0.25, 0.99, true));
  EXPECT_TRUE(tied(4, 1, true));
  EXPECT_TRUE(breaks("ties", [](Plan& p) { p.pareto.back().ratio.high *= 1.01; }));
}

TEST(CheckLists, RunnersUpFollowByStepTimeWithTheirUnusualChoices) {
  using Choices = std::vector<Unusual>;
  const Choices none, tight = {UnusualChoice::tight_memory};
  const auto pair = [](double first, const Choices& of_first, double second,
                       const Choices& of_second) {
    return breaks("runners-up-ordered", [&](Plan& p) {
      p.runners_up.resize(2, p.runners_up[0]);
      for (RunnerUp& one : p.runners_up) one.strategy = p.strategy;
      p.runners_up[0].step_time = p.prediction.step_time * first;
      p.runners_up[1].step_time = p.prediction.step_time * second;
      p.runners_up[0].unusual = of_first;
      p.runners_up[1].unusual = of_second;
    });
  };
  const double gain = rule_of(UnusualChoice::tight_memory).gain;
  EXPECT_FALSE(pair(2, none, 2, none));
  EXPECT_FALSE(pair(2, none, 3, none));
  EXPECT_TRUE(pair(3, none, 2, none));
  EXPECT_FALSE(pair(2, none, 2, tight));
  EXPECT_TRUE(pair(2, tight, 2, none));
  EXPECT_FALSE(pair(2 + gain, none, 2, tight));
  EXPECT_TRUE(pair(2 + 3 * gain, none, 2, tight));
}

TEST(CheckLists, RunnersUpLoseBySomething) {
  const auto term = [](LossTerm name, double seconds, std::int64_t bytes) {
    return breaks("runners-up-terms", [&](Plan& p) {
      p.runners_up[0].term = name;
      p.runners_up[0].term_time = Seconds(seconds);
      p.runners_up[0].term_bytes = Bytes(bytes);
    });
  };
  EXPECT_FALSE(term(LossTerm::bubble, 1e-6, 0));
  EXPECT_TRUE(term(LossTerm::bubble, 0, 64));
  EXPECT_FALSE(term(LossTerm::memory, 0, 64));
  EXPECT_TRUE(term(LossTerm::memory, 1e-6, 0));
  EXPECT_FALSE(term(LossTerm::tie, 0, 0));
  EXPECT_TRUE(term(LossTerm::unusual_choice, 0, 0));
}

TEST(CheckLists, TheFrontBeginsWithTheChosenPlan) {
  const auto first = [](const std::function<void(OtherPlan&)>& change) {
    return breaks("pareto-first", [&](Plan& p) { change(p.pareto[0]); });
  };
  EXPECT_FALSE(first([](OtherPlan&) {}));
  EXPECT_TRUE(first([](OtherPlan& one) { one.step_time = one.step_time * 1.001; }));
  EXPECT_TRUE(first([](OtherPlan& one) { one.peak += Bytes(1); }));
  EXPECT_TRUE(first([](OtherPlan& one) { one.taken += Bytes(1); }));
  // The largest stage counts, wherever it is.
  for (const std::size_t stage : {0u, 1u}) {
    EXPECT_FALSE(breaks("pareto-first", [&](Plan& p) {
      p.prediction.stages[stage].peak = p.pareto[0].peak + Bytes(64);
      p.pareto[0].peak += Bytes(64);
      p.prediction.stages[stage].reserved = p.pareto[0].taken + Bytes(64);
      p.pareto[0].taken += Bytes(64);
      for (const Filling& filling : fillings_of(p)) {
        p.pareto[0].taken = std::max(p.pareto[0].taken, filling.taken());
      }
    }));
  }
}

TEST(CheckLists, TheFrontFalls) {
  const auto next = [](double step, double taken) {
    return breaks("pareto-falls", [&](Plan& p) {
      p.pareto.resize(1, p.pareto[0]);
      p.pareto[0].taken = Bytes(100'000);
      p.pareto.push_back(p.pareto[0]);
      p.pareto[1].step_time = p.pareto[0].step_time * step;
      p.pareto[1].taken = Bytes(std::int64_t(taken));
    });
  };
  EXPECT_FALSE(next(1.1, 90'000));
  EXPECT_FALSE(next(1, 90'000));
  EXPECT_TRUE(next(0.9, 90'000));
  EXPECT_TRUE(next(1.1, 99'000));
  EXPECT_TRUE(next(1.1, 0));
}

TEST(CheckLists, NothingShownBeatsTheFront) {
  const auto shown = [](double step, double taken) {
    return breaks("pareto-dominates", [&](Plan& p) {
      p.pareto.resize(1, p.pareto[0]);
      p.runners_up.resize(1, p.runners_up[0]);
      p.runners_up[0].step_time = p.prediction.step_time * step;
      p.runners_up[0].taken = Bytes(std::int64_t(double(p.pareto[0].taken.count()) * taken));
    });
  };
  EXPECT_FALSE(shown(1, 0.97));
  EXPECT_TRUE(shown(1, 0.9));
  EXPECT_FALSE(shown(1.1, 0.9));  // slower than all of the front
  EXPECT_TRUE(shown(0.9, 1.1));
}

TEST(CheckLists, RanksOfATimelineAreThePlans) {
  const auto rank = [](std::int64_t rank) {
    return breaks("timeline-ranks", [&](Plan& p) { p.timeline.memory[0].rank = rank; });
  };
  EXPECT_FALSE(rank(valid_plan().timeline.memory[0].rank));
  EXPECT_TRUE(rank(-1));
  EXPECT_TRUE(rank(valid_plan().devices));
  EXPECT_TRUE(rank(valid_plan().timeline.memory[1].rank));  // twice
  EXPECT_TRUE(breaks("timeline-ranks", [](Plan& p) {        // the second stage has no memory
    const std::int64_t last = p.timeline.memory.back().rank;
    p.timeline.memory.pop_back();
    std::erase_if(p.timeline.intervals, [&](const Interval& one) { return one.rank == last; });
  }));
  EXPECT_TRUE(breaks("timeline-ranks", [](Plan& p) { compute(p, 0, 0).rank = 1; }));
}

TEST(CheckLists, InstantsAreInOrder) {
  EXPECT_FALSE(
      breaks("intervals-forward", [](Plan& p) { compute(p, 0, 0).end = compute(p, 0, 0).begin; }));
  EXPECT_TRUE(
      breaks("timeline-from-zero", [](Plan& p) { compute(p, 0, 0).begin = Picoseconds(-5); }));
  EXPECT_TRUE(breaks("memory-curve", [](Plan& p) {
    auto& curve = p.timeline.memory[0].curve;
    curve[1].time = curve[0].time - Picoseconds(1);
  }));
  EXPECT_FALSE(breaks("memory-curve", [](Plan& p) {
    auto& curve = p.timeline.memory[0].curve;
    curve[1].time = curve[0].time;
  }));
  EXPECT_TRUE(breaks("memory-curve", [](Plan& p) { p.timeline.memory[1].peak += Bytes(1); }));
}

TEST(CheckLists, CommunicationMayWait) {
  const auto communication = [](Plan& p) -> Interval& {
    return *std::ranges::find_if(p.timeline.intervals, [](const Interval& one) {
      return one.stream != Stream::compute && one.begin > Picoseconds(1);
    });
  };
  const auto posted = [&](std::int64_t after, bool of_several) {
    return breaks("communication-posted", [&](Plan& p) {
      Interval& one = communication(p);
      one.posted = one.begin + Picoseconds(after);
      if (of_several) one.kind.reset();
    });
  };
  for (const bool of_several : {false, true}) {
    EXPECT_FALSE(posted(-1, of_several));
    EXPECT_FALSE(posted(0, of_several));
    EXPECT_TRUE(posted(1, of_several));
  }
  EXPECT_TRUE(breaks("communication-posted", [](Plan& p) {
    Interval& one = compute(p, 0, 3);
    one.kind.reset();
    one.posted = one.begin - Picoseconds(1);
  }));
}

TEST(CheckLists, ComputationIsInTurnWithAllBefore) {
  EXPECT_TRUE(breaks("compute-in-turn", [](Plan& p) {  // the first one outlasts the second
    compute(p, 0, 0).end = compute(p, 0, 2).begin + Picoseconds(1);
    compute(p, 0, 1).begin = compute(p, 0, 1).end = compute(p, 0, 0).end;
  }));
  EXPECT_FALSE(breaks("compute-fits-step", [](Plan& p) {
    compute(p, 0, 0).end += to_picoseconds(p.prediction.step_time * 1e-12);
  }));
}

TEST(CheckLists, OnlyOpsOfSeveralRoutinesHaveNone) {
  const auto routine = [](std::int64_t ops, const std::string& name) {
    return breaks("timeline-routines", [&](Plan& p) {
      compute(p, 0, 3).ops = ops;
      compute(p, 0, 3).routine = name;
    });
  };
  EXPECT_FALSE(routine(2, ""));
  EXPECT_TRUE(routine(1, ""));
  EXPECT_TRUE(routine(2, "siesta"));
}

TEST(CheckLists, MemoryOfARankIsThatOfItsStage) {
  EXPECT_TRUE(breaks("timeline-memory", [](Plan& p) { p.timeline.memory[1].peak += Bytes(1); }));
  EXPECT_TRUE(
      breaks("timeline-memory", [](Plan& p) { p.timeline.memory[1].by_role[0] += Bytes(1); }));
  EXPECT_TRUE(breaks("timeline-memory", [](Plan& p) { p.timeline.memory[0].arena += Bytes(1); }));
}

TEST(CheckLists, OpsDrawnTogetherLastNoLongerThanTheResolution) {
  const auto resolution = [](std::int64_t less, std::int64_t ops) {
    return breaks("timeline-resolution", [&](Plan& p) {
      Interval& one = compute(p, 0, 3);
      one.ops = ops;
      p.timeline_resolution = one.end - one.begin - Picoseconds(less);
    });
  };
  EXPECT_FALSE(resolution(0, 2));
  EXPECT_TRUE(resolution(1, 2));
  EXPECT_FALSE(resolution(1, 1));
  const auto many = [](std::size_t intervals, bool coarse) {
    return breaks("timeline-resolution", [&](Plan& p) {
      p.timeline.intervals.resize(intervals, p.timeline.intervals.back());
      Picoseconds begin = kLongestTimeline, end;
      for (const Interval& one : p.timeline.intervals) {
        begin = std::min(begin, one.begin);
        end = std::max(end, one.end);
      }
      p.timeline_resolution = end - begin + Picoseconds(coarse ? 1 : 0);
    });
  };
  EXPECT_FALSE(many(kMostIntervals, false));
  EXPECT_TRUE(many(kMostIntervals + 1, false));
  EXPECT_FALSE(many(kMostIntervals + 1, true));
}

TEST(CheckLists, TimesByKindAreThoseOfTheTimeline) {
  const auto times = [](const std::function<void(Plan&)>& change) {
    return breaks("rank-times", [&](Plan& p) {
      p.timeline_resolution = Picoseconds(1);
      for (const RankMemory& memory : p.timeline.memory) {
        p.rank_times.push_back(times_of(p.timeline, memory.rank));
      }
      change(p);
    });
  };
  EXPECT_FALSE(times([](Plan&) {}));
  EXPECT_TRUE(times([](Plan& p) { p.rank_times.pop_back(); }));
  EXPECT_TRUE(times([](Plan& p) { std::swap(p.rank_times[0], p.rank_times[1]); }));
  EXPECT_TRUE(times([](Plan& p) { p.rank_times[1].by_kind[0] += Picoseconds(1); }));
  EXPECT_TRUE(times([](Plan& p) { p.timeline_resolution = Picoseconds(); }));
  EXPECT_FALSE(times([](Plan& p) {  // a rank whose intervals are left out
    const std::int64_t rank = p.timeline.memory[1].rank;
    std::erase_if(p.timeline.intervals, [&](const Interval& one) { return one.rank == rank; });
  }));
  EXPECT_TRUE(times([](Plan& p) {  // what nothing here can run is not compared with a run
    p.framework.facts.runs_on = RunsOn::nothing;
  }));
}

}  // namespace
}  // namespace plimsoll
