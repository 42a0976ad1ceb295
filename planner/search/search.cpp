// Search: explores the space, then simulates in full what is shown.
#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "plan/filling.h"
#include "planner/explore/cut_reasons.h"
#include "planner/explore/explore.h"
#include "planner/explore/runners_up.h"
#include "planner/layers/layer_choices.h"
#include "planner/search/extended_breakdown.h"
#include "predict/plan_difference.h"

namespace plimsoll {
namespace {

[[noreturn]] void nothing_legal(const SearchRequest& request, const Space& space) {
  std::string message = fmt::format("no legal strategy for {} on {}: {}", request.job.name,
                                    devices_text(request.devices), space.reason);
  if (space.rejected.size() > 1) {
    message += fmt::format(" (of {} candidates", space.enumerated);
    for (const Pruned& pruned : space.rejected) {
      message += fmt::format("; {}: {}", pruned.count, pruned.reason);
    }
    message += ")";
  }
  throw InfeasibleError(message);
}

/// The last instant of a timeline; its memory changes at ends and begins of intervals.
Picoseconds end_of(const Timeline& timeline) {
  Picoseconds end;
  for (const Interval& interval : timeline.intervals) end = std::max(end, interval.end);
  return end;
}

Plan make_plan(const SearchRequest& request, const CostModel& costs, const Strategy& strategy) {
  Evaluation evaluation =
      evaluate(request.job, strategy, request.framework, costs, request.devices, request.reserve);
  if (end_of(evaluation.timeline) > kLongestTimeline) {  // ranks far apart at the very limit
    throw InfeasibleError(fmt::format("one step takes {}, as much as a plan's timeline can show",
                                      to_text(evaluation.score.prediction.step_time)));
  }
  Plan plan;
  plan.job = request.job;
  plan.framework = request.framework;
  plan.strategy = strategy;
  plan.devices = request.devices;
  plan.cluster_name = costs.cluster().name;
  plan.cluster_digest = request.cluster_digest;
  plan.calibration_digest = request.calibration_digest;
  plan.communicator = costs.communicator();
  plan.device_kind = costs.cluster().device.kind;
  plan.mixed_devices = devices_by_kind(costs.cluster(), request.devices).size() > 1;
  plan.prediction = std::move(evaluation.score.prediction);
  plan.program_digests = std::move(evaluation.program_digests);
  plan.timeline = std::move(evaluation.timeline);
  plan.stated_vocabulary = request.job.vocab;
  plan.reserve = request.reserve;
  fit_timeline(plan);
  return plan;
}

SearchSummary summarize(const SearchRequest& request, const Space& space, const Explored& explored,
                        const Prediction& prediction) {
  const Seconds best = prediction.step_time;
  // No step is shorter, even with 8-bit products at twice the rate and causal attention that skips
  // the half which MFU counts. It matters where a search is stopped before all bounds are known.
  const Seconds ideal = best * (prediction.mfu / 4);
  SearchSummary summary;
  summary.method = request.method == SearchMethod::brute_force ? "brute force" : "branch and bound";
  summary.space = space.enumerated;
  summary.evaluated = std::int64_t(explored.candidates.size());
  summary.infeasible = std::count_if(explored.candidates.begin(), explored.candidates.end(),
                                     [](const Candidate& c) { return !feasible(c); });
  summary.pruned = space.rejected;
  if (explored.duplicates > 0) {
    summary.pruned.push_back(
        {"same Programs as with smaller gradient buckets", explored.duplicates});
  }
  summary.bounded_by = explored.bounded;
  for (const Pruned& bound : explored.bounded) summary.bounded += bound.count;
  summary.unexplored = explored.unexplored;
  summary.proven = explored.unexplored == 0;
  if (explored.least_left) {
    const Seconds least = std::max(*explored.least_left, ideal);
    if (best > least) summary.gap = best / least - 1;
  }
  return summary;
}

/// Bytes of the device, on the stage that takes most.
Bytes taken_by(const SearchRequest& request, const Candidate& candidate) {
  Filling filling;
  filling.reserved = candidate.score.reserved;
  filling.outside = memory_outside_program(request.job, candidate.strategy, request.framework);
  return filling.taken();
}

/// Bytes that the chosen plan takes of the device that it takes most of. Every stage of it is
/// known.
Bytes taken_by(const Plan& plan) {
  Bytes most;
  for (const Filling& filling : fillings_of(plan)) most = std::max(most, filling.taken());
  return most;
}

/// Chooses among the plans that nothing beats in step time and live bytes, and those that are
/// shown: the best, then each that takes enough less of the device than the one before it in order
/// of merit.
std::vector<std::size_t> front_of(const SearchRequest& request,
                                  std::span<const Candidate> candidates,
                                  std::span<const std::size_t> best) {
  std::vector<std::size_t> pool = pareto_front(candidates);
  pool.insert(pool.end(), best.begin(), best.end());
  std::sort(pool.begin(), pool.end(),
            [&](std::size_t a, std::size_t b) { return better(candidates[a], candidates[b]); });
  const Seconds longest = kFrontTimes * candidates[best[0]].score.prediction.step_time;
  std::vector<std::size_t> front;
  Bytes last;
  for (const std::size_t i : pool) {
    const Bytes taken = taken_by(request, candidates[i]);
    if (candidates[i].score.prediction.step_time > longest) break;
    if (!front.empty() && !saves_enough(taken, last)) continue;
    front.push_back(i);
    last = taken;
  }
  return front;
}

/// The breakdown of a candidate's step, which exploring leaves out.
Breakdown breakdown_of(const SearchRequest& request, const CostModel& costs,
                       const Candidate& candidate) {
  const Seconds step = candidate.score.prediction.step_time;
  if (const auto parts = extended_parts(request, costs, candidate.strategy, step))
    return break_down(*parts, step);
  const Footprint footprint =
      lay_out(request.job, candidate.strategy, request.framework, costs.cluster(), request.reserve,
              Proof::none, AllocatorReplay::leave_out);
  return predict(request.job, candidate.strategy, footprint, costs, request.devices,
                 Folding::folded, Detail::critical)
      .score.prediction.breakdown;
}

/// Makes what exploring left out: the chosen plan whole, and for the others that are shown why they
/// lose, and whether they can be told apart from it.
Plan show(const SearchRequest& request, const CostModel& costs,
          std::span<const Candidate> candidates, std::span<const std::size_t> best,
          std::span<const std::size_t> front) {
  std::vector<std::size_t> shown(best.begin(), best.end());
  for (const std::size_t i : front) {
    if (std::ranges::find(best, i) == best.end()) shown.push_back(i);
  }
  Plan plan;
  std::vector<Score> scores(shown.size());
  for_each_index(shown.size(), request.threads, [&](std::size_t i) {
    const Candidate& candidate = candidates[shown[i]];
    scores[i] = candidate.score;
    if (i == 0) {
      plan = make_plan(request, costs, candidate.strategy);
    } else {
      scores[i].prediction.breakdown = breakdown_of(request, costs, candidate);
    }
  });
  scores[0].prediction = plan.prediction;
  const auto time_of = [&](std::size_t i) -> PlanTime {
    const Prediction& prediction = scores[i].prediction;
    return {prediction.step_time, prediction.breakdown,
            layer_shape(request.job, candidates[shown[i]].strategy)};
  };
  for (std::size_t i = 1; i < best.size(); ++i) {
    RunnerUp loser = runner_up(candidates[best[i]].strategy, scores[i], scores[0]);
    loser.taken = taken_by(request, candidates[best[i]]);
    loser.ratio = step_ratio(costs, time_of(i), time_of(0));
    plan.runners_up.push_back(std::move(loser));
  }
  tied_first(plan.runners_up);
  for (const std::size_t c : front) {
    const auto i = std::size_t(std::ranges::find(shown, c) - shown.begin());
    plan.pareto.push_back({candidates[c].strategy, scores[i].prediction.step_time,
                           step_ratio(costs, time_of(i), time_of(0)), scores[i].peak,
                           i == 0 ? taken_by(plan) : taken_by(request, candidates[c])});
  }
  return plan;
}

/// Whether for some strategy no bound says that what lives between steps does not fit.
bool lives(const Space& space, const Explored& explored) {
  std::int64_t cannot = 0;
  for (const Pruned& bound : explored.bounded) {
    if (bound.reason == kReasonTexts[kPersistent]) cannot += bound.count;
  }
  return cannot < std::int64_t(space.legal.size());
}

/// The best plan with the others. Its allocators are replayed on every stage now, with all
/// micro-batches: where that shows that it does not fit, the next best takes its place, and
/// `fastest_unfit` is the step of the first. Nothing where none is left.
std::optional<Plan> show_best(const SearchRequest& request, const CostModel& costs,
                              std::vector<Candidate>& candidates,
                              std::optional<Seconds>& fastest_unfit) {
  while (true) {
    const std::vector<std::size_t> best = best_plans(candidates);
    if (best.empty()) return std::nullopt;
    Plan plan = show(request, costs, candidates, best, front_of(request, candidates, best));
    if (std::ranges::all_of(fillings_of(plan), &Filling::fits)) return plan;
    Score& unfit = candidates[best.front()].score;
    unfit.fits = false;
    if (!fastest_unfit) fastest_unfit = unfit.prediction.step_time;
  }
}

/// No plan: says what there is to say of it, in what is left of the time limit.
[[noreturn]] void nothing_found(const SearchRequest& request, const CostModel& costs,
                                const Space& space, const Explored& explored,
                                std::chrono::steady_clock::time_point begin) {
  if (explored.unexplored == 0) {
    SearchRequest left = request;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (left.time_limit)
      left.time_limit = Seconds(std::max(0.0, left.time_limit->value() - taken.count()));
    refuse(left, costs, space, lives(space, explored));
  }
  throw NothingFoundYet(fmt::format(
      "stopped {}: {} of {} legal strategies evaluated, none fits so far, {} are left",
      request.time_limit ? fmt::format("after the time limit of {}", to_text(*request.time_limit))
                         : "early",
      explored.candidates.size(), space.legal.size(), explored.unexplored));
}

/// After a search that was not stopped early. A time limit does not end it: whether there are cuts
/// would depend on the machine, and they take a few seconds.
void add_layer_choices(const SearchRequest& request, const CostModel& costs, const Space& space,
                       const Bounds& bounds, const Explored& explored,
                       std::vector<Candidate>& candidates) {
  const std::vector<std::size_t> best = best_plans(candidates);
  if (best.empty() || explored.unexplored > 0) return;
  const Seconds step = candidates[best.front()].score.prediction.step_time;
  const auto passed = [&] { return request.stop && request.stop(); };
  for (Candidate& found :
       layer_choices(request, costs, space, bounds, explored.may_fit, step, passed))
    candidates.push_back(std::move(found));
}

/// A peak below what was measured is a slip of the pen: no device is faster than its peak.
void check_mfu(const Plan& plan, const Cluster& cluster) {
  if (plan.prediction.mfu <= 1) return;
  throw InputError("cluster " + cluster.name, "/device/peak",
                   fmt::format("the calibrated times mean an MFU of {:.3g}: the device is faster "
                               "than the peak that is stated",
                               plan.prediction.mfu));
}

/// The bundled runtime comes in two forms, of the kernels that a kind of device has.
void check_framework(const Framework& framework, const Cluster& cluster) {
  const bool gpu = cluster.device.kind == DeviceKind::gpu;
  if (framework.facts.runs_on == RunsOn::cpu_cores && gpu) {
    throw InfeasibleError(fmt::format(
        "framework {} is the bundled runtime on CPU cores, and the devices of cluster {} are GPUs: "
        "plan for {} or another framework",
        framework.name, cluster.name, bundled_cuda_framework().name));
  }
  if (framework.facts.runs_on == RunsOn::gpus && !gpu) {
    throw InfeasibleError(fmt::format(
        "framework {} is the bundled runtime on GPUs, and the devices of cluster {} are CPU cores",
        framework.name, cluster.name));
  }
}

}  // namespace

Plan search(const SearchRequest& request, const CostModel& costs) {
  const auto begin = std::chrono::steady_clock::now();
  check_framework(request.framework, costs.cluster());
  peak_rate(costs.cluster(), request.job.precision, request.devices);
  const bool oversubscribed = check_devices(costs.cluster(), request.devices);
  const Space space = enumerate(request.job, request.framework, request.devices, request.fixed,
                                units_of(costs.cluster()));
  if (space.legal.empty()) nothing_legal(request, space);

  const Bounds bounds(request.job, request.framework, costs, request.devices);
  Explored explored = request.method == SearchMethod::brute_force
                          ? explore_all(request, costs, space, bounds)
                          : branch_and_bound(request, costs, space, bounds);
  std::vector<Candidate> candidates = explored.candidates;
  add_layer_choices(request, costs, space, bounds, explored, candidates);
  std::optional<Seconds> fastest_unfit;
  std::optional<Plan> plan = show_best(request, costs, candidates, fastest_unfit);
  if (fastest_unfit) take_back_time_cuts(explored, *fastest_unfit);
  if (!plan) nothing_found(request, costs, space, explored, begin);
  check_mfu(*plan, costs.cluster());
  plan->oversubscribed = oversubscribed;
  plan->devices_per_node = costs.cluster().devices_per_node;
  plan->search = summarize(request, space, explored, plan->prediction);
  return *std::move(plan);
}

}  // namespace plimsoll
