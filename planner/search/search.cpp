// Explores the space, then simulates in full the plans that are shown.
#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "models/job/causal_flops.h"
#include "plan/filling.h"
#include "planner/explore/assess.h"
#include "planner/explore/explore.h"
#include "planner/explore/runners_up.h"
#include "planner/layers/layer_choices.h"
#include "planner/search/exchange_choices.h"
#include "planner/search/extended_breakdown.h"
#include "predict/plan_difference.h"
#include "predict/trials.h"
#include "predict/tried_layouts.h"

namespace plimsoll {
namespace {

/// Returns the rule that held values break which no search varies, if there are legal strategies
/// without these values.
std::optional<std::string> rule_of_held(const SearchRequest& request) {
  const std::vector<std::string_view> unvaried = not_searched();
  SearchRequest without = request;
  std::erase_if(without.constraints.fixed, [&](const auto& held) {
    return std::ranges::find(unvaried, held.first) != unvaried.end();
  });
  if (without.constraints.fixed.size() == request.constraints.fixed.size()) return std::nullopt;
  const Space space = enumerate(without);
  if (space.legal.empty()) return std::nullopt;
  Strategy strategy = space.legal[0];
  for (const auto& [key, value] : request.constraints.fixed) set_field(strategy, key, value);
  const Verdict verdict = legal(request.target, strategy);
  return verdict ? std::nullopt : std::optional(verdict.reason());
}

[[noreturn]] void nothing_legal(const SearchRequest& request, const Space& space) {
  const auto held = rule_of_held(request);
  const bool more = !held && space.rejected.size() > 1;
  throw InfeasibleError(fmt::format(
      "no legal strategy for {} on {}: {}{}", request.target.job.name,
      devices_text(request.target.devices), held.value_or(space.reason),
      more ? fmt::format(" (the commonest reason of {} candidates; planner space counts all)",
                         space.enumerated)
           : ""));
}

/// Returns the last instant of a timeline. Memory changes only where intervals end or begin.
Picoseconds end_of(const Timeline& timeline) {
  Picoseconds end;
  for (const Interval& interval : timeline.intervals) end = std::max(end, interval.end);
  return end;
}

SearchSummary summarize(const SearchRequest& request, const Space& space, const Explored& explored,
                        const Prediction& prediction) {
  const Seconds best = prediction.step_time;
  // No step is shorter, since no device exceeds its peak rate. Causal attention may skip half of
  // what MFU counts, and 8-bit products may have twice the rate. It matters where a search is
  // stopped before all bounds are known.
  const Job& job = request.target.job;
  const double counts = 1 - 3 * masked_flops_per_sequence(job).value() /
                                training_matmul_flops_per_sequence(job).value();
  const bool is_8_bit = std::ranges::any_of(space.legal.families(), [](const StrategyFamily& f) {
    return f.base.precision.fp8 != Fp8::none;
  });
  const Seconds ideal = best * (prediction.mfu * counts / (is_8_bit ? 2 : 1));
  SearchSummary summary;
  summary.space = space.enumerated;
  summary.evaluated = std::int64_t(explored.candidates.size());
  summary.infeasible = std::count_if(explored.candidates.begin(), explored.candidates.end(),
                                     [](const Candidate& c) { return !feasible(c); });
  summary.pruned = space.rejected;
  if (explored.duplicates > 0) {
    summary.pruned.push_back(
        {"same Programs as with smaller gradient buckets", explored.duplicates});
  }
  summary.bounded = explored.bounded;
  summary.unexplored = explored.unexplored;
  summary.proven = explored.unexplored == 0;
  if (explored.least_left) {
    const Seconds least = std::max(*explored.least_left, ideal);
    if (best > least) summary.gap = best / least - 1;
  }
  return summary;
}

/// Returns the Pareto front of step time and taken bytes: the best plan, then each that takes
/// enough less of the device than the plan before it. It is chosen among the front of step time and
/// live bytes and the plans that are shown.
std::vector<std::size_t> front_of(const Target& target, std::span<const Candidate> candidates,
                                  std::span<const std::size_t> best) {
  std::vector<std::size_t> pool = pareto_front(candidates);
  pool.insert(pool.end(), best.begin(), best.end());
  std::sort(pool.begin(), pool.end(),
            [&](std::size_t a, std::size_t b) { return better(candidates[a], candidates[b]); });
  const Seconds longest = kFrontTimes * merit(candidates[best[0]]);
  std::vector<std::size_t> front;
  Bytes last;
  for (const std::size_t i : pool) {
    const Bytes taken = taken_by(target, candidates[i]);
    if (merit(candidates[i]) > longest) break;
    if (!front.empty() && !saves_enough(taken, last)) continue;
    front.push_back(i);
    last = taken;
  }
  return front;
}

/// The plans that are shown: the best ones in order, then those of the front, then the fastest.
struct ShownPlans {
  const Target& target;
  std::span<const Candidate> candidates;
  std::vector<std::size_t> indices;     ///< of candidates
  std::vector<Prediction> predictions;  ///< of these
  Evaluation chosen;                    ///< of the first

  const Candidate& at(std::size_t place) const { return candidates[indices[place]]; }
  std::size_t place_of(std::size_t index) const {
    return std::size_t(std::ranges::find(indices, index) - indices.begin());
  }
  PlanTime time_of(std::size_t place) const {
    return plan_time(target, at(place).strategy, predictions[place].step_time,
                     predictions[place].breakdown);
  }
  StepRatio ratio_of(std::size_t place) const {
    return step_ratio(*target.costs, time_of(place), time_of(0));
  }
};

Evaluation evaluate_chosen(const Target& target, const Strategy& strategy) {
  Evaluation evaluation = evaluate(target, strategy);
  if (end_of(evaluation.timeline) > kLongestTimeline) {  // ranks far apart at the very limit
    throw InfeasibleError(fmt::format("one step takes {}, as much as a plan's timeline can show",
                                      to_text(evaluation.prediction.step_time)));
  }
  return evaluation;
}

/// Evaluates the plans that are shown. The chosen strategy is lowered once more here, with all
/// proofs (ADR 0009).
ShownPlans evaluate_shown(const SearchRequest& request, std::span<const Candidate> candidates,
                          std::span<const std::size_t> best, std::span<const std::size_t> front) {
  ShownPlans plans{request.target, candidates, {best.begin(), best.end()}, {}, {}};
  const auto add = [&](std::size_t i) {
    if (plans.place_of(i) == plans.indices.size()) plans.indices.push_back(i);
  };
  std::ranges::for_each(front, add);
  add(fastest_plan(candidates).value());
  plans.predictions.resize(plans.indices.size());
  for_each_index(plans.indices.size(), request.threads, [&](std::size_t i) {
    const Candidate& candidate = plans.at(i);
    plans.predictions[i] = candidate.prediction;
    if (i == 0) {
      plans.chosen = evaluate_chosen(request.target, candidate.strategy);
      plans.predictions[0] = plans.chosen.prediction;
    } else {
      plans.predictions[i].breakdown =
          breakdown_of(request.target, candidate.strategy, candidate.prediction.step_time);
    }
  });
  return plans;
}

/// Returns a plan that is shown, against the chosen one.
OtherPlan other_plan(const ShownPlans& plans, std::size_t i) {
  return {plans.at(i).strategy,
          plans.predictions[i].step_time,
          plans.ratio_of(i),
          largest(plans.predictions[i].stages, &StagePrediction::peak),
          taken_by(plans.target, plans.at(i)),
          plans.at(i).unusual};
}

std::vector<OtherPlan> pareto_of(const ShownPlans& plans, std::span<const std::size_t> front,
                                 const Plan& chosen) {
  std::vector<OtherPlan> points;
  for (const std::size_t index : front) points.push_back(other_plan(plans, plans.place_of(index)));
  points.front().taken = most_taken(chosen);  // with all micro-batches
  return points;
}

/// Returns the fastest plan with the reasons why the chosen one is recommended instead; nothing if
/// that is the fastest.
std::optional<FastestPlan> fastest_of(const ShownPlans& plans) {
  const std::size_t i = plans.place_of(fastest_plan(plans.candidates).value());
  const Seconds step = plans.predictions[i].step_time;
  if (step >= plans.predictions[0].step_time) return std::nullopt;
  FastestPlan fastest{other_plan(plans, i), 1 - step / plans.predictions[0].step_time};
  fastest.unusual.clear();
  std::ranges::set_difference(plans.at(i).unusual, plans.at(0).unusual,
                              std::back_inserter(fastest.unusual));
  return fastest;
}

/// Returns the plans to try: the chosen one, and those whose gain over the training pays for their
/// steps. What was tried before (predict/tried_layouts.h) is not tried again; then each trial has
/// to beat the fastest run.
std::vector<Trial> trials_of(const ShownPlans& plans, const Plan& chosen) {
  std::vector<TrialPlan> pool;
  std::vector<std::size_t> places;
  const LearnedStep* fastest = fastest_run(plans.target);
  if (fastest) {  // a measurement leaves nothing open
    pool.push_back({{fastest->measured, {}, {}, TimeBasis::fit_of_model, 0.0}, {}});
    places.push_back(0);
  }
  for (std::size_t i = 0; i < plans.indices.size(); ++i) {
    if (fastest && last_run(plans.target, plans.at(i).strategy)) continue;
    pool.push_back({plans.time_of(i), plans.at(i).unusual});
    places.push_back(i);
  }
  const double tokens = chosen.training ? chosen.training->tokens : kUsualTokens;
  std::vector<Trial> trials;
  if (!fastest) trials.push_back({other_plan(plans, 0)});
  for (const ChosenTrial& one :
       choose_trials(pool, least_gain(training_step(chosen).tokens, tokens)))
    trials.push_back({other_plan(plans, places[one.plan]), one.gain});
  if (trials.empty() || trials.back().gain == 0) trials.clear();
  return trials;
}

/// Returns the chosen plan, the first of `best`, with the others that are shown: why they lose, and
/// whether they can be told apart from it.
Plan make_plan(const SearchRequest& request, const Space& space, const Explored& explored,
               std::span<const Candidate> candidates, std::span<const std::size_t> best) {
  const Target& target = request.target;
  const PlanInputs& inputs = request.inputs;
  const Cluster& cluster = target.cluster();
  const std::vector<std::size_t> front = front_of(target, candidates, best);
  ShownPlans plans = evaluate_shown(request, candidates, best, front);
  Plan plan;
  plan.origin = inputs.origin;
  plan.constraints = request.constraints;
  plan.job = target.job;
  plan.stated_vocabulary = inputs.stated_vocabulary.value_or(target.job.vocab);
  plan.framework = target.framework();
  plan.strategy = plans.at(0).strategy;
  plan.origin.interval_basis = interval_basis(target, plan.strategy);
  plan.devices = target.devices;
  plan.devices_per_node = cluster.devices_per_node;
  plan.cluster_name = cluster.name;
  plan.cluster_digest = inputs.cluster_digest;
  plan.calibration_digest = inputs.calibration_digest;
  plan.calibration_rest_digest = inputs.calibration_rest_digest;
  plan.reserve = target.reserve;
  plan.communicator = target.costs->communicator();
  plan.device_kind = cluster.device.kind;
  plan.mixed_devices = devices_by_kind(cluster, target.devices).size() > 1;
  plan.oversubscribed = is_oversubscribed(target);
  plan.prediction = std::move(plans.chosen.prediction);
  if (inputs.training) plan.training = training_of(training_step(plan), *inputs.training);
  plan.program_digests = std::move(plans.chosen.program_digests);
  plan.search = summarize(request, space, explored, plan.prediction);
  plan.unusual = plans.at(0).unusual;
  plan.fastest = fastest_of(plans);
  for (std::size_t i = 1; i < best.size(); ++i) {
    plan.runners_up.push_back(
        runner_up(other_plan(plans, i), plans.predictions[i], plan.prediction));
  }
  plan.pareto = pareto_of(plans, front, plan);
  if (!runs_here(plan.framework)) plan.trials = trials_of(plans, plan);
  plan.timeline = std::move(plans.chosen.timeline);
  fit_timeline(plan);
  return plan;
}

/// Whether the bytes that live between steps may fit for some strategy, by the bounds.
bool lasting_bytes_fit(const Space& space, const Explored& explored) {
  return explored.bounded[std::size_t(Cut::lasting_bytes)] < std::int64_t(space.legal.size());
}

/// Returns the best plan with the others that are shown. Its allocators are replayed on every
/// stage, with all micro-batches. If the plan then does not fit, the next best takes its place, and
/// cuts by the first one's step are taken back. Returns nothing if none is left.
std::optional<Plan> show_best(const SearchRequest& request, const Space& space, Explored& explored,
                              std::vector<Candidate>& candidates) {
  for (bool is_first = true;; is_first = false) {
    const std::vector<std::size_t> best = best_plans(candidates, request.shown);
    if (best.empty()) return std::nullopt;
    Plan plan = make_plan(request, space, explored, candidates, best);
    if (std::ranges::all_of(fillings_of(plan), &Filling::fits)) return plan;
    Candidate& unfit = candidates[best.front()];
    unfit.fits = false;
    if (is_first) take_back_time_cuts(explored, unfit.prediction.step_time);
  }
}

/// Says why there is no plan, in the time that is left of the limit.
[[noreturn]] void nothing_found(const SearchRequest& request, const Space& space,
                                const Explored& explored,
                                std::chrono::steady_clock::time_point begin) {
  if (explored.unexplored == 0) {
    SearchRequest left = request;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (left.time_limit)
      left.time_limit = Seconds(std::max(0.0, left.time_limit->value() - taken.count()));
    refuse(left, space, lasting_bytes_fit(space, explored));
  }
  throw NothingFoundYet(fmt::format(
      "stopped {}: {} of {} legal strategies evaluated, none fits so far, {} are left",
      request.time_limit ? fmt::format("after the time limit of {}", to_text(*request.time_limit))
                         : "early",
      explored.candidates.size(), space.legal.size(), explored.unexplored));
}

/// Adds cuts by cost after a search that was not stopped early.
void add_layer_choices(const SearchRequest& request, const Space& space, const Bounds& bounds,
                       const Explored& explored, std::vector<Candidate>& candidates) {
  const std::vector<std::size_t> best = best_plans(candidates);
  if (best.empty() || explored.unexplored > 0) return;
  const BestSoFar so_far{merit(candidates[best.front()]),
                         candidates[fastest_plan(candidates).value()].prediction.step_time};
  for (Candidate& found : layer_choices(request, space, bounds, explored.may_fit, so_far))
    candidates.push_back(std::move(found));
}

/// Adds plans with other exchanges of experts, after a search that was not stopped early.
void add_exchange_choices(const SearchRequest& request, const Space& space,
                          const Explored& explored, std::vector<Candidate>& candidates) {
  if (explored.unexplored > 0) return;
  const std::size_t first_index = space.legal.size() + candidates.size();
  const Handicaps handicaps(request);
  for (Candidate& found : exchange_choices(request, candidates, first_index)) {
    handicaps.weigh(found);
    candidates.push_back(std::move(found));
  }
}

/// Refuses a stated peak rate that measured times exceed: no device is faster than its peak.
void check_mfu(const Plan& plan, const Cluster& cluster) {
  if (plan.prediction.mfu <= 1) return;
  throw InputError("cluster " + cluster.name, "/device/peak",
                   fmt::format("the calibrated times mean an MFU of {:.3g}: the device is faster "
                               "than the peak that is stated",
                               plan.prediction.mfu));
}

/// Refuses a bundled runtime that has no kernels for the kind of device.
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

Plan search(const SearchRequest& asked, Explore& explore) {
  const auto begin = std::chrono::steady_clock::now();
  SearchRequest request = asked;
  if (asked.time_limit) {
    const std::chrono::duration<double> limit(asked.time_limit->value());
    request.stop = [&, begin, limit] {
      return (asked.stop && asked.stop()) || std::chrono::steady_clock::now() - begin >= limit;
    };
  }
  const Target& target = request.target;
  check_framework(target.framework(), target.cluster());
  check_peak_rate(target.cluster(), target.job.precision, target.devices);
  check_devices(target);
  const Space space = enumerate(request);
  if (space.legal.empty()) nothing_legal(request, space);

  const Bounds bounds(target);
  Explored explored = explore(request, space, bounds);
  std::vector<Candidate> candidates = explored.candidates;
  add_layer_choices(request, space, bounds, explored, candidates);
  add_exchange_choices(request, space, explored, candidates);
  std::optional<Plan> plan = show_best(request, space, explored, candidates);
  if (!plan) nothing_found(request, space, explored, begin);
  check_mfu(*plan, target.cluster());
  return *std::move(plan);
}

}  // namespace plimsoll
