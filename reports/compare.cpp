// Compare: predicted against measured, a subtraction of Timelines.
#include "reports/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/file.h"
#include "graph/program.h"
#include "graph/traffic.h"
#include "passes/pipeline.h"
#include "passes/strategy/sharding_rules.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

/// A plan's timeline shows one rank per class.
std::map<std::size_t, const RankMemory*> predicted_by_class(const Plan& plan) {
  const Grid grid = grid_of(plan.strategy);
  std::map<std::size_t, const RankMemory*> by_class;
  for (const RankMemory& memory : plan.timeline.memory) {
    if (memory.rank >= grid.world_size()) continue;
    by_class.emplace(class_of_rank(plan.strategy, memory.rank), &memory);
  }
  return by_class;
}

void check_same_plan(const Plan& plan, const Measured& measured, const ComparedFiles& files) {
  const std::string expected = digest(plan_text(plan));
  if (measured.plan_digest != expected) {
    throw InputError(files.measured, "/plan_digest",
                     fmt::format("found {}; this plan's digest is {}: the run was of another plan",
                                 measured.plan_digest, expected));
  }
  std::vector<std::int64_t> ranks;
  for (const RankMemory& memory : measured.timeline.memory) ranks.push_back(memory.rank);
  for (std::int64_t rank = 0; rank < plan.devices; ++rank) {
    if (std::size_t(rank) >= ranks.size() || ranks[std::size_t(rank)] != rank) {
      throw InputError(files.measured, "/timeline/memory",
                       fmt::format("found no rank {} at place {}; ranks 0 to {} are required, in "
                                   "order",
                                   rank, rank, plan.devices - 1));
    }
  }
  if (std::int64_t(ranks.size()) != plan.devices) {
    throw InputError(files.measured, "/timeline/memory",
                     fmt::format("found {} ranks; the plan has {}", ranks.size(), plan.devices));
  }
}

std::vector<RankComparison> compare_ranks(const Plan& plan, const Measured& measured,
                                          const ComparedFiles& files) {
  const auto by_class = predicted_by_class(plan);
  std::vector<RankComparison> ranks;
  for (const RankMemory& memory : measured.timeline.memory) {
    const std::size_t of_rank = class_of_rank(plan.strategy, memory.rank);
    const auto predicted = by_class.find(of_rank);
    if (predicted == by_class.end()) {
      throw InputError(files.plan, "/timeline/memory",
                       fmt::format("found no rank of {}; every stage is required",
                                   name_of(plan.prediction.stages.at(of_rank))));
    }
    RankComparison comparison;
    comparison.rank = memory.rank;
    comparison.peak = {predicted->second->peak, memory.peak};
    for (std::size_t role = 0; role < kTensorRoles; ++role) {
      comparison.by_role[role] = {predicted->second->by_role[role], memory.by_role[role]};
    }
    ranks.push_back(comparison);
  }
  return ranks;
}

std::map<Group, Bytes> sent_by_group(const std::vector<Traffic>& traffic) {
  std::map<Group, Bytes> sent;
  for (const Traffic& one : traffic) sent[one.group] += one.sent;
  return sent;
}

/// Predicted: by the Programs that the plan stands for.
std::vector<TrafficComparison> compare_traffic(const Plan& plan, const Measured& measured) {
  const std::vector<Program> programs =
      lower({plan.job, plan.strategy, plan.framework}, {}, Proof::none);
  const Grid& grid = programs[0].grid;
  std::vector<TrafficComparison> comparisons;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const Program& program = programs[class_of(programs, grid.coordinates(rank))];
    std::map<Group, BytesPair> by_group;
    for (const auto& [group, sent] : sent_by_group(step_traffic(program, rank))) {
      by_group[group].predicted = sent;
    }
    for (const auto& [group, sent] : sent_by_group(measured.traffic.at(std::size_t(rank)))) {
      by_group[group].measured = sent;
    }
    for (const auto& [group, sent] : by_group) comparisons.push_back({rank, group, sent});
  }
  return comparisons;
}

/// Per step, mean over ranks.
struct RankMeans {
  std::array<double, kOpKinds> by_kind = {};
  double wait = 0, transfer = 0;
};

/// Predicted ranks are weighted equally per stage: every stage has as many ranks.
RankMeans means_over(const std::vector<RankTimes>& ranks) {
  RankMeans means;
  const double share = 1.0 / static_cast<double>(std::max<std::size_t>(ranks.size(), 1));
  for (const RankTimes& rank : ranks) {
    for (std::size_t kind = 0; kind < rank.by_kind.size(); ++kind) {
      means.by_kind[kind] += share * rank.by_kind[kind].seconds().value();
    }
    means.wait += share * rank.exposed.wait.seconds().value();
    means.transfer += share * rank.exposed.transfer.seconds().value();
  }
  return means;
}

/// Times of one rank of each class: those that the plan keeps of a timeline drawn together, else of
/// the timeline.
std::vector<RankTimes> predicted_times(const Plan& plan) {
  std::vector<RankTimes> times;
  for (const auto& [of_class, memory] : predicted_by_class(plan)) {
    const std::int64_t rank = memory->rank;
    const auto kept = std::find_if(plan.rank_times.begin(), plan.rank_times.end(),
                                   [&](const RankTimes& known) { return known.rank == rank; });
    times.push_back(kept != plan.rank_times.end() ? *kept : times_of(plan.timeline, rank));
  }
  return times;
}

void compare_times(const Plan& plan, const Measured& measured, Comparison& comparison) {
  const std::vector<RankTimes> of_plan = predicted_times(plan);
  std::vector<RankTimes> of_run;
  for (const RankMemory& memory : measured.timeline.memory) {
    of_run.push_back(times_of(measured.timeline, memory.rank));
  }
  const RankMeans predicted = means_over(of_plan), seen = means_over(of_run);
  std::array<bool, kOpKinds> occurs = {};
  for (const Timeline* timeline : {&plan.timeline, &measured.timeline}) {
    for (const Interval& interval : timeline->intervals) {
      if (interval.kind) occurs[std::size_t(*interval.kind)] = true;
    }
  }
  for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
    occurs[kind] = occurs[kind] || predicted.by_kind[kind] > 0;
  }
  for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
    if (!occurs[kind]) continue;
    comparison.ops.push_back(
        {OpKind(kind), {Seconds(predicted.by_kind[kind]), Seconds(seen.by_kind[kind])}});
  }
  comparison.exposed_wait = {Seconds(predicted.wait), Seconds(seen.wait)};
  comparison.exposed_transfer = {Seconds(predicted.transfer), Seconds(seen.transfer)};
}

bool equal(const BytesPair& pair) { return pair.predicted == pair.measured; }

bool equal(const RankComparison& rank) {
  return equal(rank.peak) && std::all_of(rank.by_role.begin(), rank.by_role.end(),
                                         [](const BytesPair& pair) { return equal(pair); });
}

/// The first that differs, if one does.
std::optional<std::string> traffic_sentence(const Comparison& comparison) {
  for (const TrafficComparison& one : comparison.traffic) {
    if (equal(one.sent)) continue;
    return fmt::format("bytes sent differ, first on rank {}: over {} {} predicted, {} measured",
                       one.rank, to_text(one.group), grouped(one.sent.predicted.count()),
                       grouped(one.sent.measured.count()));
  }
  return std::nullopt;
}

std::string bytes_sentence(const Comparison& comparison) {
  const auto& ranks = comparison.ranks;
  const auto differing = std::count_if(ranks.begin(), ranks.end(),
                                       [](const RankComparison& rank) { return !equal(rank); });
  if (differing == 0) {
    if (const auto differs = traffic_sentence(comparison)) return *differs;
    if (ranks.size() == 1) return "peak bytes are equal in every class on the one rank";
    return fmt::format("peak bytes are equal in every class on all {} ranks", ranks.size());
  }
  const auto first = std::find_if(ranks.begin(), ranks.end(),
                                  [](const RankComparison& rank) { return !equal(rank); });
  std::string_view what = "peak";
  BytesPair pair = first->peak;
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    if (equal(first->by_role[role])) continue;
    what = to_text(TensorRole(role));
    pair = first->by_role[role];
    break;
  }
  return fmt::format(
      "peak bytes differ on {} of {} ranks, first on rank {}: {} {} predicted, {} "
      "measured",
      differing, ranks.size(), first->rank, what, grouped(pair.predicted.count()),
      grouped(pair.measured.count()));
}

std::string time_sentence(const Comparison& comparison) {
  if (!comparison.makes_timing_claim) {
    return "no claim is made about time, because " + comparison.no_claim_reason;
  }
  const TimePair& step = comparison.step_time;
  const char* direction = step.predicted < step.measured ? "below" : "above";
  return fmt::format(
      "the predicted step time of {} is {} {} the measured {}, {} the tolerance of {}",
      to_text(step.predicted), percent(comparison.time_error), direction, to_text(step.measured),
      comparison.time_within ? "within" : "outside", percent(comparison.tolerance));
}

std::string verdict_of(const Comparison& comparison) {
  const bool holds = comparison.bytes_equal && comparison.time_within;
  return fmt::format("{}: {}; {}.", holds ? "The plan holds" : "The plan does not hold",
                     bytes_sentence(comparison), time_sentence(comparison));
}

/// "for mpi from calibration 0123456789ab (80 % measured, 20 % interpolated); ..."
std::string provenance_of(const Plan& plan, const Measured& measured) {
  std::string shares;
  const auto& by_provenance = plan.prediction.share_by_provenance;
  for (std::size_t i = 0; i < by_provenance.size(); ++i) {
    if (by_provenance[i] < 0.0005) continue;
    shares += fmt::format("{}{:.1f} % {}", shares.empty() ? "" : ", ", 100 * by_provenance[i],
                          to_text(Provenance(i)));
  }
  const std::string from = plan.calibration_digest.empty()
                               ? "without a calibration"
                               : "from calibration " + plan.calibration_digest.substr(0, 12);
  return fmt::format(
      "Predicted for the {} communicator {} ({}); measured with the {} communicator, {} "
      "backend.",
      to_text(plan.communicator), from, shares, measured.communicator, measured.backend);
}

/// Why the plan's step time says nothing about this run; empty where it does.
std::string why_no_claim(const Plan& plan, const Measured& measured) {
  if (plan.oversubscribed) return "there are more ranks than cores";
  if (plan.calibration_digest.empty() || measured.communicator == to_text(plan.communicator)) {
    return "";
  }
  return fmt::format("the calibration is of the {} communicator, and the run used {}",
                     to_text(plan.communicator), measured.communicator);
}

}  // namespace

double prediction_error(const TimePair& time) {
  return std::abs(time.predicted.value() - time.measured.value()) / time.measured.value();
}

Comparison compare(const Plan& plan, const Measured& measured, double tolerance,
                   const ComparedFiles& files) {
  check_same_plan(plan, measured, files);
  if (!(measured.median_step_time.value() > 0)) {
    throw InputError(
        files.measured, "/median_step_time_s",
        fmt::format("found {}; a positive time is required", measured.median_step_time.value()));
  }
  Comparison comparison;
  comparison.tolerance = tolerance;
  comparison.step_time = {plan.prediction.step_time, measured.median_step_time};
  comparison.time_error = prediction_error(comparison.step_time);
  comparison.ranks = compare_ranks(plan, measured, files);
  compare_times(plan, measured, comparison);
  comparison.traffic = compare_traffic(plan, measured);
  comparison.experts = measured.experts;
  if (plan.job.experts && plan.strategy.ep > 1) comparison.predicted_load = plan.job.experts->load;
  comparison.bytes_equal = !traffic_sentence(comparison) &&
                           std::all_of(comparison.ranks.begin(), comparison.ranks.end(),
                                       [](const RankComparison& rank) { return equal(rank); });
  comparison.no_claim_reason = why_no_claim(plan, measured);
  comparison.makes_timing_claim = comparison.no_claim_reason.empty();
  comparison.time_within = !comparison.makes_timing_claim || comparison.time_error <= tolerance;
  comparison.timeline_calls = shows_calls(plan.devices);
  comparison.verdict = verdict_of(comparison);
  comparison.provenance = provenance_of(plan, measured);
  comparison.predicted_communicator = to_text(plan.communicator);
  comparison.measured_communicator = measured.communicator;
  return comparison;
}

}  // namespace plimsoll
