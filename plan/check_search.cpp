// Rules: the search accounts for its whole space and the plans that lost did lose.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/check_rules.h"
#include "plan/filling.h"
#include "plan/unusual_choices.h"

namespace plimsoll {
namespace {

Bytes largest_peak(const Plan& plan) {
  Bytes peak;
  for (const StagePrediction& stage : plan.prediction.stages) peak = std::max(peak, stage.peak);
  return peak;
}

Seconds merit_of(const OtherPlan& plan) { return merit(plan.step_time, plan.unusual); }

/// Finds the first error that `check` finds in the plans that were not chosen, in the order of the
/// file.
template <class Check>
Finding in_others(const Plan& plan, Check check) {
  if (plan.fastest) {
    if (Finding wrong = check(*plan.fastest)) return wrong;
  }
  for (const OtherPlan& one : plan.runners_up) {
    if (Finding wrong = check(one)) return wrong;
  }
  for (const OtherPlan& one : plan.pareto) {
    if (Finding wrong = check(one)) return wrong;
  }
  return std::nullopt;
}

/// Says what is wrong with one list of reasons; adds its counts to `sum`.
Finding counted(const std::vector<Pruned>& entries, std::int64_t space, std::int64_t& sum) {
  for (const Pruned& entry : entries) {
    if (entry.count < 0 || entry.count > space) {
      return fmt::format("{} candidates of {} pruned: {}", entry.count, space, entry.reason);
    }
    if (entry.reason.empty()) {
      return fmt::format("{} candidates pruned without a reason", entry.count);
    }
    sum += entry.count;
  }
  return std::nullopt;
}

Finding search_counts(const CheckContext& context) {
  const SearchSummary& search = context.plan.search;
  std::int64_t pruned = 0;
  if (Finding wrong = counted(search.pruned, search.space, pruned)) return wrong;
  for (std::size_t i = 0; i < kCuts.size(); ++i) {
    if (search.bounded[i] < 0 || search.bounded[i] > search.space) {
      return fmt::format("{} candidates of {} cut: {}", search.bounded[i], search.space, kCuts[i]);
    }
  }
  const std::int64_t bounded = sum_of(search.bounded);
  if (search.unexplored < 0) {
    return fmt::format("{} candidates unexplored", search.unexplored);
  }
  if (search.evaluated < 1) return "the chosen plan itself was evaluated, yet none is counted";
  if (search.space == search.evaluated + bounded + pruned + search.unexplored) return std::nullopt;
  return fmt::format(
      "{} evaluated, {} bounded, {} pruned and {} unexplored are not the {} candidates of the "
      "space",
      search.evaluated, bounded, pruned, search.unexplored, search.space);
}

Finding search_proven(const CheckContext& context) {
  const SearchSummary& search = context.plan.search;
  if (search.proven != (search.unexplored == 0)) {
    return fmt::format("{}proven with {} candidates unexplored", search.proven ? "" : "not ",
                       search.unexplored);
  }
  if (search.gap < 0) return fmt::format("a gap of {} is below nothing", search.gap);
  if (search.proven && search.gap != 0) {
    return fmt::format("proven, yet with a gap of {}", search.gap);
  }
  return std::nullopt;
}

Finding infeasible_count(const CheckContext& context) {
  const SearchSummary& search = context.plan.search;
  if (search.infeasible >= 0 && search.infeasible < search.evaluated) return std::nullopt;
  return fmt::format("{} of {} evaluated candidates do not fit, yet the chosen one does",
                     search.infeasible, search.evaluated);
}

Finding runners_up_counted(const CheckContext& context) {
  const SearchSummary& search = context.plan.search;
  const auto shown = std::int64_t(context.plan.runners_up.size()) + 1;
  const std::int64_t fit = search.evaluated - search.infeasible;
  if (shown > fit) {
    return fmt::format(
        "{} runners-up in addition to the chosen plan, but {} of those evaluated fit", shown - 1,
        fit);
  }
  return std::nullopt;
}

/// Checks a strategy by the rules for the chosen one, including the framework's.
Verdict legal_in(const Plan& plan, const Strategy& strategy) {
  Verdict verdict = legal(plan.job, strategy, plan.devices);
  return verdict ? legal(plan.framework, plan.job, strategy) : verdict;
}

Finding others_legal(const CheckContext& context) {
  if (context.programs.empty()) return std::nullopt;
  return in_others(context.plan, [&](const OtherPlan& other) -> Finding {
    const Verdict verdict = legal_in(context.plan, other.strategy);
    if (verdict) return std::nullopt;
    return fmt::format("{}: {}", strategy_summary(other.strategy), verdict.reason());
  });
}

Finding runners_up_fit(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (plan.prediction.stages.empty()) return std::nullopt;
  const bool mixed = plan.mixed_devices;  // then the plan does not say whose they are
  const Bytes capacity = plan.prediction.stages.front().capacity;
  for (const RunnerUp& runner_up : plan.runners_up) {
    const std::string who = strategy_summary(runner_up.strategy);
    if (runner_up.peak <= Bytes() || runner_up.taken <= Bytes()) {
      return fmt::format("{} needs no memory", who);
    }
    if (mixed || runner_up.taken + plan.reserve <= capacity) continue;
    return fmt::format("{} takes {} bytes of the device's {}, of which {} are kept free", who,
                       runner_up.taken.count(), capacity.count(), plan.reserve.count());
  }
  return std::nullopt;
}

/// Finds a strategy of the list that is there twice, or is among `seen`.
template <class Others>
Finding repeated(const Others& list, std::vector<Strategy> seen) {
  for (const OtherPlan& one : list) {
    if (std::ranges::find(seen, one.strategy) != seen.end())
      return fmt::format("{} appears twice", strategy_summary(one.strategy));
    seen.push_back(one.strategy);
  }
  return std::nullopt;
}

Finding runners_up_distinct(const CheckContext& context) {
  return repeated(context.plan.runners_up, {context.plan.strategy});
}

Finding pareto_distinct(const CheckContext& context) { return repeated(context.plan.pareto, {}); }

Finding runners_up_lose(const CheckContext& context) {
  const Plan& plan = context.plan;
  const Seconds chosen = merit(plan.prediction.step_time, plan.unusual);
  for (const RunnerUp& runner_up : plan.runners_up) {
    const Seconds other = merit_of(runner_up);
    if (other < chosen) {
      return fmt::format("{} takes {} s with its unusual choices, less than the chosen plan's {} s",
                         strategy_summary(runner_up.strategy), other.value(), chosen.value());
    }
    if (other == chosen && runner_up.peak < largest_peak(plan)) {
      return fmt::format("{} is as good and peaks at {} bytes, less than the chosen plan's {}",
                         strategy_summary(runner_up.strategy), runner_up.peak.count(),
                         largest_peak(plan).count());
    }
  }
  return std::nullopt;
}

/// Returns an unusual choice in the list that the strategy does not have.
std::optional<UnusualChoice> invented(const Plan& plan, const Strategy& strategy,
                                      std::span<const Unusual> choices) {
  const std::vector<Unusual> has =
      unusual_choices(plan.job, strategy, {plan.devices_per_node, plan.mixed_devices});
  for (const Unusual& one : choices) {
    if (one.choice != UnusualChoice::tight_memory && std::ranges::find(has, one) == has.end())
      return one.choice;
  }
  return std::nullopt;
}

Finding unusual(const CheckContext& context) {
  const Plan& plan = context.plan;
  const auto hold = [&](const Strategy& strategy, std::span<const Unusual> choices) -> Finding {
    const auto choice = invented(plan, strategy, choices);
    if (!choice) return std::nullopt;
    return fmt::format("{} counts as unusual for {}, which it does not have",
                       strategy_summary(strategy), rule_of(*choice).words);
  };
  if (Finding wrong = hold(plan.strategy, plan.unusual)) return wrong;
  if (Finding wrong = in_others(
          plan, [&](const OtherPlan& other) { return hold(other.strategy, other.unusual); }))
    return wrong;
  // Its gain rests on the memory of fewer micro-batches, which may differ a little.
  const bool tight =
      std::ranges::count(plan.unusual, UnusualChoice::tight_memory, &Unusual::choice) > 0;
  if (tight && plan.prediction.memory.verdict == MemoryVerdict::safe)
    return "the chosen plan counts as tight in memory, which is safe";
  return std::nullopt;
}

Finding fastest(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (!plan.fastest || plan.prediction.step_time <= Seconds()) return std::nullopt;
  const FastestPlan& other = *plan.fastest;
  const std::string who = strategy_summary(other.strategy);
  if (other.step_time >= plan.prediction.step_time) {
    return fmt::format("{} takes {} s, no less than the chosen plan's {} s", who,
                       other.step_time.value(), plan.prediction.step_time.value());
  }
  const double gain = 1 - other.step_time / plan.prediction.step_time;
  if (!nearly_equal(1 + gain, 1 + other.gain))
    return fmt::format("{} gains {}, said to be {}", who, gain, other.gain);
  for (const RunnerUp& one : plan.runners_up) {
    if (one.step_time < other.step_time) {
      return fmt::format("{} takes {} s, less than the fastest plan's {} s",
                         strategy_summary(one.strategy), one.step_time.value(),
                         other.step_time.value());
    }
  }
  if (handicap(other.unusual) * other.step_time >= plan.prediction.step_time) return std::nullopt;
  return fmt::format("{} gains {}, more than its unusual choices require", who, gain);
}

Finding ties(const CheckContext& context) {
  const Seconds chosen = context.plan.prediction.step_time;
  if (chosen <= Seconds()) return std::nullopt;  // step-time-positive says so
  return in_others(context.plan, [&](const OtherPlan& other) -> Finding {
    const StepRatio& said = other.ratio;
    const double ratio = other.step_time / chosen, middle = std::sqrt(said.low * said.high);
    if (said.low > said.high || !nearly_equal(middle, ratio)) {
      return fmt::format("{} takes {} times the chosen step, not in the middle of {} to {}",
                         strategy_summary(other.strategy), ratio, said.low, said.high);
    }
    if (said.tied == (said.low <= 1 && 1 <= said.high)) return std::nullopt;
    return fmt::format("{} is {}tied, yet takes {} to {} times the chosen step",
                       strategy_summary(other.strategy), said.tied ? "" : "not ", said.low,
                       said.high);
  });
}

Finding runners_up_ordered(const CheckContext& context) {
  const std::vector<RunnerUp>& list = context.plan.runners_up;
  for (std::size_t i = 1; i < list.size(); ++i) {
    const Seconds before = merit_of(list[i - 1]), after = merit_of(list[i]);
    if (before <= after) continue;
    return fmt::format("{} ({} s with its unusual choices) comes after {} ({} s)",
                       strategy_summary(list[i].strategy), after.value(),
                       strategy_summary(list[i - 1].strategy), before.value());
  }
  return std::nullopt;
}

Finding runners_up_terms(const CheckContext& context) {
  for (const RunnerUp& runner_up : context.plan.runners_up) {
    const bool by_bytes = runner_up.term == LossTerm::memory;
    const bool says_how_much =
        by_bytes ? runner_up.term_bytes > Bytes()
                 : runner_up.term == LossTerm::tie || runner_up.term_time > Seconds() ||
                       (runner_up.term == LossTerm::unusual_choice && !runner_up.unusual.empty());
    if (!says_how_much) {
      return fmt::format("{} loses by {}, but by nothing", strategy_summary(runner_up.strategy),
                         to_text(runner_up.term));
    }
  }
  return std::nullopt;
}

Finding pareto_first(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (context.programs.empty()) return std::nullopt;  // the chosen strategy is not legal
  if (plan.pareto.empty()) return "no plan is on the front, not even the chosen one";
  const OtherPlan& first = plan.pareto.front();
  if (first.strategy == plan.strategy && first.step_time == plan.prediction.step_time &&
      first.peak == largest_peak(plan) && first.taken == most_taken(plan)) {
    return std::nullopt;
  }
  return fmt::format("{} is first on the front, not the chosen plan",
                     strategy_summary(first.strategy));
}

Finding pareto_falls(const CheckContext& context) {
  const std::vector<OtherPlan>& front = context.plan.pareto;
  for (std::size_t i = 1; i < front.size(); ++i) {
    if (merit_of(front[i]) >= merit_of(front[i - 1]) && front[i].taken > Bytes() &&
        saves_enough(front[i].taken, front[i - 1].taken)) {
      continue;
    }
    return fmt::format("{} takes {} s and {} bytes, after {} s and {} bytes",
                       strategy_summary(front[i].strategy), front[i].step_time.value(),
                       front[i].taken.count(), front[i - 1].step_time.value(),
                       front[i - 1].taken.count());
  }
  return std::nullopt;
}

/// Each shown plan must be on the front, or a plan of the front must be as fast and need hardly
/// more memory.
Finding pareto_dominates(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (plan.pareto.empty()) return std::nullopt;  // pareto-first says so
  const Seconds slowest = merit_of(plan.pareto.back());
  for (const RunnerUp& runner_up : plan.runners_up) {
    const Seconds merit_of_other = merit_of(runner_up);
    if (merit_of_other > slowest) continue;
    const bool beaten =
        std::any_of(plan.pareto.begin(), plan.pareto.end(), [&](const OtherPlan& point) {
          return merit_of(point) <= merit_of_other && !saves_enough(runner_up.taken, point.taken);
        });
    if (!beaten) {
      return fmt::format("{} is faster or leaner than every plan on the front",
                         strategy_summary(runner_up.strategy));
    }
  }
  return std::nullopt;
}

constexpr CheckRule kSearchRules[] = {
    {{"search-counts", "Evaluated, bounded, pruned and unexplored candidates are the whole space."},
     search_counts},
    {{"search-proven", "The answer is proven, without gap, exactly if nothing is unexplored."},
     search_proven},
    {{"infeasible-count", "What does not fit was evaluated, and not everything failed to fit."},
     infeasible_count},
    {{"runners-up-counted", "Every runner-up is one of the evaluated candidates that fit."},
     runners_up_counted},
    {{"others-legal",
      "Every plan that is shown is legal for the job, these devices and the framework."},
     others_legal},
    {{"runners-up-fit", "Every runner-up needs memory, and leaves the reserve of its device."},
     runners_up_fit},
    {{"runners-up-distinct", "No strategy appears twice."}, runners_up_distinct},
    {{"runners-up-lose",
      "No runner-up is better than the chosen plan, with what unusual choices count."},
     runners_up_lose},
    {{"unusual", "Unusual choices that count against a plan are choices that it has."}, unusual},
    {{"fastest",
      "The fastest plan is faster than the chosen one, by less than its unusual choices require."},
     fastest},
    {{"ties",
      "Plans whose ratio to the chosen step may be 1 are tied, no others; its interval is around "
      "it."},
     ties},
    {{"runners-up-ordered", "Runners-up follow by step time, with what unusual choices count."},
     runners_up_ordered},
    {{"runners-up-terms", "Every runner-up names a known term and by how much it loses."},
     runners_up_terms},
    {{"pareto-first", "The chosen plan begins the Pareto front."}, pareto_first},
    {{"pareto-falls",
      "Along the Pareto front no plan is better, and each takes at least 5 % less of the device."},
     pareto_falls},
    {{"pareto-distinct", "No strategy is twice on the Pareto front."}, pareto_distinct},
    {{"pareto-dominates", "No plan that is shown beats the Pareto front."}, pareto_dominates},
};

}  // namespace

std::span<const CheckRule> search_rules() { return kSearchRules; }

}  // namespace plimsoll
