// Assesses changes as a search assesses candidates, and finds the intervals of their ratios.
#include "planner/explain/assessed_change.h"

#include <algorithm>
#include <atomic>
#include <tuple>

#include "base/parallel.h"
#include "plan/memory_interval.h"
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
                                           std::size_t before, std::size_t all_changes) {
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
    if (request.progress) request.progress(std::int64_t(count), std::int64_t(all_changes));
  });
  return all;
}

std::vector<AssessedChange> assess_changes(const ExplainRequest& request, const Strategy& strategy,
                                           std::span<const Fixed> changes, const PlanTime& plan) {
  return assess_changes(request, strategy, changes, plan, 0, changes.size());
}

Seconds merit(const AssessedChange& change) { return merit(change.step_time, change.unusual); }

void best_first(std::vector<AssessedChange>& changes) {
  std::ranges::stable_sort(changes, {}, [](const AssessedChange& change) {
    return std::tuple(change.outcome, merit(change), change.need);
  });
}

Bytes least_need(const Target& target, const Strategy& strategy,
                 std::span<const StagePrediction> stages) {
  return largest(stages, &StagePrediction::peak) + outside_program(target, strategy);
}

}  // namespace plimsoll
