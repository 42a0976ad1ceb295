// Search: evaluates every legal strategy and keeps the best.
#include "planner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "planner/runners_up.h"

namespace plimsoll {
namespace {

Footprint footprint_of(const SearchRequest& request, const CostModel& costs,
                       const Strategy& strategy) {
  return lay_out(request.job, strategy, request.framework, costs.cluster().device, request.reserve,
                 Proof::structure);
}

/// The last instant of a timeline; its memory changes at ends and begins of intervals.
Picoseconds end_of(const Timeline& timeline) {
  Picoseconds end;
  for (const Interval& interval : timeline.intervals) end = std::max(end, interval.end);
  return end;
}

/// Completes a candidate's score by simulation, or says why its step takes too long.
void add_times(const SearchRequest& request, const CostModel& costs, const Footprint& footprint,
               Candidate& candidate) {
  try {
    Evaluation evaluation =
        predict(request.job, candidate.strategy, footprint, costs, request.devices);
    if (end_of(evaluation.timeline) > kLongestTimeline) {
      throw InfeasibleError(fmt::format(
          "one step would take {}, longer than the {} that a plan's "
          "timeline can hold",
          to_text(evaluation.score.prediction.step_time), to_text(kLongestTimeline.seconds())));
    }
    candidate.score = std::move(evaluation.score);
  } catch (const InfeasibleError& error) {
    candidate.too_long = error.what();
  }
}

/// What does not fit is not simulated: its step time decides nothing, and where nothing fits its
/// Programs are the longest.
Candidate assess(const SearchRequest& request, const CostModel& costs, const Strategy& strategy) {
  const Footprint footprint = footprint_of(request, costs, strategy);
  Candidate candidate{strategy, {{}, footprint.arena, footprint.peak, footprint.fits}, {}, {}};
  candidate.score.prediction.stages = footprint.stages;
  for (const std::string& digest : digests_of(footprint.programs)) candidate.programs += digest;
  if (footprint.fits) add_times(request, costs, footprint, candidate);
  return candidate;
}

/// Every candidate lands in its own place, so the result does not depend on the number of threads.
std::vector<Candidate> assess_all(const SearchRequest& request, const CostModel& costs,
                                  std::span<const Strategy> strategies) {
  std::vector<Candidate> candidates(strategies.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // guards done, failure and progress
  std::int64_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < strategies.size(); i = next++) {
      try {
        candidates[i] = assess(request, costs, strategies[i]);
        const std::lock_guard lock(mutex);
        ++done;
        if (request.progress) request.progress(done, std::int64_t(strategies.size()));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = strategies.size();
      }
    }
  };
  {
    const auto cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
    std::vector<std::jthread> helpers;
    for (std::int64_t i = 1; i < (request.threads > 0 ? request.threads : cores); ++i) {
      helpers.emplace_back(work);
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return candidates;
}

[[noreturn]] void nothing_legal(const SearchRequest& request, const Space& space) {
  std::string message = fmt::format("no legal strategy for {} on {} devices: {}", request.job.name,
                                    request.devices, space.first_reason);
  for (const Pruned& pruned : space.rejected) {
    message +=
        fmt::format("\n  {} of {} candidates: {}", pruned.count, space.enumerated, pruned.reason);
  }
  throw InfeasibleError(message);
}

[[noreturn]] void nothing_fits(const SearchRequest& request,
                               std::span<const Candidate> candidates) {
  const auto least = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.score.arena < b.score.arena; });
  const auto& stages = least->score.prediction.stages;
  const auto tightest = std::max_element(
      stages.begin(), stages.end(),
      [](const StagePrediction& a, const StagePrediction& b) { return a.arena < b.arena; });
  throw InfeasibleError(fmt::format(
      "{} does not fit on {} devices: of {} legal strategies the one that needs least ({}) "
      "still needs {} ({} bytes) on stage {}, with {} of reserve, and a device has {} ({} bytes)",
      request.job.name, request.devices, candidates.size(), strategy_summary(least->strategy),
      to_text(tightest->arena), tightest->arena.count(), tightest->stage, to_text(request.reserve),
      to_text(tightest->capacity), tightest->capacity.count()));
}

[[noreturn]] void all_take_too_long(const SearchRequest& request,
                                    std::span<const Candidate> candidates, const Candidate& first) {
  const auto fitting = std::count_if(candidates.begin(), candidates.end(),
                                     [](const Candidate& c) { return c.score.fits; });
  throw InfeasibleError(fmt::format(
      "{} takes too long on {} devices: of {} legal strategies {} fit, none in time; {}: {}",
      request.job.name, request.devices, candidates.size(), fitting,
      strategy_summary(first.strategy), first.too_long));
}

bool feasible(const Candidate& candidate) {
  return candidate.score.fits && candidate.too_long.empty();
}

/// None is feasible: says so of what fits but takes too long, else of the bytes.
[[noreturn]] void refuse(const SearchRequest& request, std::span<const Candidate> candidates) {
  for (const Candidate& candidate : candidates) {
    if (candidate.score.fits) all_take_too_long(request, candidates, candidate);
  }
  nothing_fits(request, candidates);
}

Plan make_plan(const SearchRequest& request, const CostModel& costs, const Strategy& strategy) {
  Evaluation evaluation =
      evaluate(request.job, strategy, request.framework, costs, request.devices, request.reserve);
  Plan plan;
  plan.job = request.job;
  plan.framework = request.framework;
  plan.strategy = strategy;
  plan.devices = request.devices;
  plan.cluster_name = costs.cluster().name;
  plan.cluster_digest = request.cluster_digest;
  plan.calibration_digest = request.calibration_digest;
  plan.device_kind = costs.cluster().device.kind;
  plan.prediction = std::move(evaluation.score.prediction);
  plan.program_digests = std::move(evaluation.program_digests);
  plan.timeline = std::move(evaluation.timeline);
  cap_timeline(plan);
  return plan;
}

SearchSummary summarize(const Space& space, std::span<const Candidate> candidates) {
  SearchSummary summary;
  summary.method = "brute force";
  summary.space = space.enumerated;
  summary.evaluated = std::int64_t(candidates.size());
  summary.infeasible = std::count_if(candidates.begin(), candidates.end(),
                                     [](const Candidate& c) { return !feasible(c); });
  summary.pruned = space.rejected;
  summary.proven = true;  // every legal strategy was evaluated
  return summary;
}

}  // namespace

bool check_devices(const Cluster& cluster, std::int64_t devices) {
  if (!cluster.nodes) return false;
  const std::int64_t available = *cluster.nodes * cluster.devices_per_node;
  if (devices <= available) return false;
  if (cluster.device.kind == DeviceKind::cpu_core) return true;
  throw InfeasibleError(fmt::format("cluster {} has {} devices ({} nodes of {}), {} were asked for",
                                    cluster.name, available, *cluster.nodes,
                                    cluster.devices_per_node, devices));
}

Plan search(const SearchRequest& request, const CostModel& costs) {
  if (costs.cluster().device.kind == DeviceKind::gpu &&
      request.framework.name == bundled_framework().name) {
    throw InfeasibleError(fmt::format(
        "the bundled runtime runs on CPU cores, and the devices of cluster {} are GPUs: plan for "
        "another framework",
        costs.cluster().name));
  }
  const bool oversubscribed = check_devices(costs.cluster(), request.devices);
  const Space space = enumerate(request.job, request.framework, request.devices, request.fixed);
  if (space.legal.empty()) nothing_legal(request, space);
  std::vector<Candidate> candidates = assess_all(request, costs, space.legal);

  std::vector<std::size_t> ranked(candidates.size());
  std::iota(ranked.begin(), ranked.end(), std::size_t{0});
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::size_t a, std::size_t b) {
    return better(candidates[a], candidates[b]);
  });
  const Candidate& best = candidates[ranked[0]];
  if (!feasible(best)) refuse(request, candidates);

  Plan plan = make_plan(request, costs, best.strategy);
  if (plan.prediction.mfu > 1) {
    throw InputError("cluster " + costs.cluster().name, "/device/peak",
                     fmt::format("the calibrated times mean an MFU of {:.3g}: the device is faster "
                                 "than the peak that is stated",
                                 plan.prediction.mfu));
  }
  plan.oversubscribed = oversubscribed;
  plan.search = summarize(space, candidates);
  for (std::size_t index : choose_runners_up(candidates, ranked)) {
    Candidate& loser = candidates[index];
    if (!loser.score.fits) {
      add_times(request, costs, footprint_of(request, costs, loser.strategy), loser);
    }
    if (loser.too_long.empty()) plan.runners_up.push_back(runner_up(loser, best, request.reserve));
  }
  return plan;
}

}  // namespace plimsoll
