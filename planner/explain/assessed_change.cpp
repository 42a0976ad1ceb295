// Assesses changes as a search assesses candidates, and finds the fastest by bounds.
#include <algorithm>
#include <atomic>
#include <set>
#include <tuple>

#include "base/parallel.h"
#include "plan/memory_interval.h"
#include "planner/explain/sensitivity.h"
#include "planner/explore/assess.h"
#include "planner/explore/handicaps.h"
#include "planner/search/extended_breakdown.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

/// Returns the unusual choices of a candidate without those of the strategy before.
std::vector<Unusual> new_unusual(const ExplainRequest& request, const Strategy& before,
                                 Candidate& candidate) {
  const SearchRequest held{request.target, request.constraints};
  const Handicaps handicaps(held);
  handicaps.weigh(candidate);
  std::vector<Unusual> known = handicaps.of(before, Bytes());
  known.push_back(tight_memory(request.overflow));
  std::vector<Unusual> added = candidate.unusual;
  std::erase_if(added, [&](const Unusual& one) {
    return std::ranges::any_of(known, [&](const Unusual& other) {
      return other.choice == one.choice && other.gain >= one.gain;
    });
  });
  return added;
}

void assess(const ExplainRequest& request, const Strategy& before, const PlanTime& plan,
            AssessedChange& change) {
  const Target& target = request.target;
  Candidate candidate = assess(target, change.strategy, 0);
  confirm_memory(target, {&candidate, 1}, 1);
  if (!feasible(candidate)) {
    change.outcome = candidate.too_long ? ChangeOutcome::too_long : ChangeOutcome::does_not_fit;
    change.need = least_need(target, change.strategy, candidate.prediction.stages);
    return;
  }
  change.outcome = ChangeOutcome::runs;
  change.need = taken_by(target, candidate);
  change.step_time = candidate.prediction.step_time;
  change.unusual = new_unusual(request, before, candidate);
  const PlanTime time = plan_time(target, change.strategy, change.step_time,
                                  breakdown_of(target, change.strategy, change.step_time));
  change.ratio = step_ratio(*target.costs, time, plan);
}

/// How many changes are assessed at once. A fixed number makes results independent of the number of
/// threads.
constexpr std::size_t kAssessedAtOnce = 8;

/// A change that may run.
struct Likely {
  Fixed change;
  Picoseconds least_time;  ///< no step with it takes less
};

std::optional<Likely> likely(const ExplainRequest& request, const Bounds& bounds,
                             const Strategy& before, const Fixed& change) {
  const Target& target = request.target;
  const Strategy strategy = with_choices(before, change, target.devices);
  if (strategy == request.strategy || !legal(target, strategy)) return std::nullopt;
  const Bytes room = room_for_program(target, strategy, largest_memory(target));
  if (bounds.persistent(strategy) > room) return std::nullopt;
  if (bounds.memory(strategy).reserved > room) return std::nullopt;
  try {
    return Likely{change, bounds.bottleneck(strategy)};
  } catch (const InfeasibleError&) {  // too long for the clock
    return std::nullopt;
  }
}

std::vector<Likely> likely_changes(const ExplainRequest& request, const Bounds& bounds,
                                   const Strategy& strategy, std::span<const Fixed> changes) {
  std::vector<std::optional<Likely>> all(changes.size());
  for_each_index(changes.size(), request.threads, [&](std::size_t i) {
    check_goes_on(request);
    all[i] = likely(request, bounds, strategy, changes[i]);
  });
  std::vector<Likely> order;
  for (std::optional<Likely>& one : all) {
    if (one) order.push_back(std::move(*one));
  }
  std::ranges::stable_sort(order, {}, &Likely::least_time);
  return order;
}

/// Removes changes of choices that an earlier one changes, too, to other values.
void keep_best_of_each_choice(std::vector<AssessedChange>& changes) {
  std::set<std::set<std::string>> known;
  std::erase_if(changes, [&](const AssessedChange& change) {
    std::set<std::string> keys;
    for (const auto& [key, value] : change.change) keys.insert(key);
    return !known.insert(std::move(keys)).second;
  });
}

void find_fastest(const ExplainRequest& request, const Strategy& strategy,
                  const std::vector<Likely>& order, const PlanTime& plan, const Wanted& wanted,
                  Fastest& result) {
  const auto& [most, below, one_of_each_choice] = wanted;
  std::vector<AssessedChange>& found = result.found;
  const std::size_t last = std::min(order.size(), kMostAssessedChanges);
  for (std::size_t i = 0; i < order.size(); i += kAssessedAtOnce) {
    const Seconds least = order[i].least_time.seconds();
    if (below && least >= *below) return;
    if (found.size() >= most && least >= merit(found.back())) return;
    if (i >= kMostAssessedChanges) {
      const std::optional<Seconds> best = found.empty() ? below : merit(found.front());
      result.proven = best && least >= *best;
      return;
    }
    std::vector<Fixed> round;
    for (std::size_t k = i; k < std::min(order.size(), i + kAssessedAtOnce); ++k)
      round.push_back(order[k].change);
    for (AssessedChange& change : assess_changes(request, strategy, round, plan, i, last)) {
      const bool runs = change.outcome == ChangeOutcome::runs;
      if (runs && (!below || merit(change) < *below)) found.push_back(std::move(change));
    }
    best_first(found);
    if (one_of_each_choice) keep_best_of_each_choice(found);
    if (found.size() > most) found.resize(most);
  }
}

}  // namespace

std::string_view to_text(ChangeOutcome outcome) {
  switch (outcome) {
    case ChangeOutcome::runs:
      return "runs";
    case ChangeOutcome::does_not_fit:
      return "does not fit";
    case ChangeOutcome::too_long:
      return "takes too long";
    case ChangeOutcome::illegal:
      return "illegal";
  }
  return "";
}

void check_goes_on(const ExplainRequest& request) {
  if (request.stop && request.stop())
    throw NothingFoundYet("an interrupt ended the explanation before it was whole");
}

std::vector<AssessedChange> assess_changes(const ExplainRequest& request, const Strategy& strategy,
                                           std::span<const Fixed> changes, const PlanTime& plan,
                                           std::size_t before, std::optional<std::size_t> of) {
  const Target& target = request.target;
  std::vector<AssessedChange> all(changes.size());
  std::atomic<std::size_t> done = before;
  for_each_index(changes.size(), request.threads, [&](std::size_t i) {
    check_goes_on(request);
    AssessedChange& change = all[i];
    change.change = changes[i];
    change.strategy = with_choices(strategy, changes[i], target.devices);
    const Verdict verdict = legal(target, change.strategy);
    if (verdict) {
      assess(request, strategy, plan, change);
    } else {
      change.rule = verdict.reason();
    }
    const std::size_t count = ++done;
    if (request.progress)
      request.progress(std::int64_t(count), std::int64_t(of.value_or(changes.size())));
  });
  return all;
}

Seconds merit(const AssessedChange& change) { return merit(change.step_time, change.unusual); }

void best_first(std::vector<AssessedChange>& changes) {
  std::ranges::stable_sort(changes, {}, [](const AssessedChange& change) {
    return std::tuple(change.outcome, merit(change), change.need);
  });
}

Fastest fastest(const ExplainRequest& request, const Bounds& bounds, const Strategy& strategy,
                std::span<const Fixed> changes, const PlanTime& plan, const Wanted& wanted) {
  Fastest result;
  try {
    find_fastest(request, strategy, likely_changes(request, bounds, strategy, changes), plan,
                 wanted, result);
  } catch (const NothingFoundYet&) {  // asked to stop; what was assessed stands
    result.proven = false;
  }
  return result;
}

Bytes least_need(const Target& target, const Strategy& strategy,
                 std::span<const StagePrediction> stages) {
  return largest(stages, &StagePrediction::peak) + outside_program(target, strategy);
}

}  // namespace plimsoll
