// Writes what a log shows, and what it leaves open.
#include "planner/api/run_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/log_statistics.h"
#include "planner/explain/explain_text.h"
#include "predict/step_interval.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostParts = 3;
/// The logarithm of a smaller change is 0.0 %.
constexpr double kLeastShown = 0.0005;

double half_width(const ErrorPart& part) { return kNormal90 * part.deviation; }

/// Returns "+1.2 % (-3.0 to +5.6 %)" of a logarithm and of its interval, with `more` before ")".
std::string change_text(double change, double half_width, const std::string& more = "") {
  const auto percent = [](double logarithm) { return 100 * std::expm1(logarithm); };
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f} %{})", percent(change),
                     percent(change - half_width), percent(change + half_width), more);
}

std::string measured_text(const OwnRun& own, const LearnedRun& learned) {
  const SteadyPart& steady = own.steady;
  const double half = own.run.half_width;
  return fmt::format(
      "{} in {} steps (half of them {} to {}), {:+.1f} % against {} of {} (90 % "
      "interval {} to {})",
      to_text(learned.measured), steady.steps, to_text(steady.lower_quartile),
      to_text(steady.upper_quartile), 100 * (learned.measured / learned.before - 1),
      own.ran_before ? "the last run" : "the prediction", to_text(learned.before),
      to_text(learned.before * std::exp(-half)), to_text(learned.before * std::exp(half)));
}

/// Names the numbers that account for the difference, and then those of which this is certain.
std::string parts_lines(const LearnedRun& learned) {
  std::vector<std::string> named, certain;
  double rest = std::log(learned.measured / learned.before), others = 0;
  for (const ErrorPart& part : learned.error_parts) {
    rest -= part.change;
    if (std::abs(part.change) < kLeastShown) continue;
    if (std::abs(part.change) > half_width(part)) certain.push_back(part.name);
    if (named.size() == kMostParts) {
      others += part.change;
      continue;
    }
    const std::string alone = part.alone ? fmt::format("; alone {:.2f} times", *part.alone) : "";
    named.push_back(part.name + " " + change_text(part.change, half_width(part), alone));
  }
  if (std::abs(others) >= kLeastShown)
    named.push_back(fmt::format("others {:+.1f} %", 100 * std::expm1(others)));
  if (std::abs(rest) >= kLeastShown)
    named.push_back(fmt::format("unexplained {:+.1f} %", 100 * std::expm1(rest)));
  if (named.empty()) return explain_line("off", "nothing");
  return explain_line("off", fmt::format("{}", fmt::join(named, ", "))) +
         explain_line("certain", certain.empty() ? "none of these: the log does not tell them apart"
                                                 : fmt::format("{}", fmt::join(certain, ", ")));
}

std::string steps_text(const SteadyPart& steady) {
  const auto& [share, lost, period] = steady.slow;
  const auto& trend = steady.trend;
  const std::string drift =
      trend ? change_text(trend->change, trend->half_width) + " from the first to the last"
            : "too few steps to show a drift";
  if (share == 0) return drift + "; none is slow";
  return fmt::format("{}; {:.1f} % are slow{} and cost {:.1f} % of the time", drift, 100 * share,
                     period ? fmt::format(", one in {},", *period) : "", 100 * lost);
}

/// Takes a logarithm and the half width of its interval.
Json interval_json(double change, double half_width) {
  return {{"change", std::expm1(change)},
          {"low", std::expm1(change - half_width)},
          {"high", std::expm1(change + half_width)}};
}

Json parts_json(const LearnedRun& learned) {
  Json parts = Json::array();
  for (const ErrorPart& part : learned.error_parts) {
    parts.push_back(interval_json(part.change, half_width(part)));
    parts.back()["name"] = part.name;
    parts.back()["alone"] = part.alone ? Json(*part.alone) : Json(nullptr);
  }
  return parts;
}

Json slow_json(const SlowSteps& slow) {
  return {{"share", slow.share},
          {"time_lost", slow.lost},
          {"period", slow.period ? Json(*slow.period) : Json(nullptr)}};
}

}  // namespace

bool is_expected(const OwnRun& own, const LearnedRun& learned) {
  return std::abs(std::log(learned.measured / learned.before)) <= own.run.half_width;
}

std::string run_lines(const OwnRun& own, const LearnedRun& learned) {
  std::string text = explain_line("measured", measured_text(own, learned)) + parts_lines(learned) +
                     explain_line("steps", steps_text(own.steady));
  if (learned.unlikely)
    text += explain_line("unlikely", "check that the log is of this script and this cluster");
  for (const std::string& doubt : own.log.doubts) text += explain_line("doubt", doubt);
  return text;
}

Json run_json(const OwnRun& own, const LearnedRun& learned) {
  const SteadyPart& steady = own.steady;
  const double half = own.run.half_width;
  Json json = {
      {"script", own.script},
      {"log", own.file},
      {"trainer", own.log.trainer},
      {"steps", steady.steps},
      {"left_out_steps", steady.left_out.size()},
      {"measured_s", learned.measured.value()},
      {"lower_quartile_s", steady.lower_quartile.value()},
      {"upper_quartile_s", steady.upper_quartile.value()},
      {"before_s", learned.before.value()},
      {"before_low_s", learned.before.value() * std::exp(-half)},
      {"before_high_s", learned.before.value() * std::exp(half)},
      {"expected", is_expected(own, learned)},
      {"after_s", learned.after.value()},
      {"error_parts", parts_json(learned)},
      {"trend", steady.trend ? interval_json(steady.trend->change, steady.trend->half_width)
                             : Json(nullptr)},
      {"slow_steps", slow_json(steady.slow)},
      {"unlikely", learned.unlikely},
      {"contradicts", learned.contradicts},
      {"doubts", own.log.doubts}};
  json["parts"] = json["peaks"] = Json::array();
  for (const LearnedPart& part : learned.parts) {
    json["parts"].push_back({{"part", kTimedParts[std::size_t(part.part)]},
                             {"measured_s", part.measured.value()},
                             {"before_s", part.before.value()},
                             {"after_s", part.after.value()}});
  }
  for (const LoggedPeak& peak : own.run.peaks) {
    json["peaks"].push_back({{"kind", to_text(peak.kind)},
                             {"measured_bytes", peak.measured.count()},
                             {"before_bytes", peak.predicted.count()}});
  }
  json["peak_contradicts"] = learned.peak_contradicts;
  if (learned.left_out) {
    json["by_others"] = {{"error", std::expm1(-learned.left_out->error)},
                         {"half_width", std::expm1(kNormal90 * learned.left_out->deviation)}};
  }
  return json;
}

std::vector<LearnedFrom> learn_one_by_one(const LearnQuestion& question) {
  std::vector<LearnedFrom> all;
  for (OwnRun& own : read_runs(question)) {
    // If the same program ran before, its measured step takes the place of the prediction.
    const double scale = own.ran_before.value_or(1);
    own.run.measured -= std::log(scale);
    for (FitPartTime& part : own.run.parts) part.measured -= std::log(scale);
    Learned learned = learn({own.run}, own.run.target.fitted);
    if (own.ran_before) {
      const double repeated = kNormal90 * std::numbers::sqrt2 * repeated_deviation();
      own.run.half_width = std::min(own.run.half_width, repeated);
    }
    LearnedRun& run = learned.runs[0];
    for (Seconds* step : {&run.measured, &run.before, &run.after}) *step = *step * scale;
    for (LearnedPart& part : run.parts) {
      for (Seconds* time : {&part.measured, &part.before, &part.after}) *time = *time * scale;
    }
    all.push_back({std::move(own), std::move(learned)});
  }
  return all;
}

Target with_learned(const Target& target, FittedCalibration fitted) {
  Cluster cluster = target.cluster();
  Framework framework = target.framework();
  apply(fitted, cluster, framework);
  fitted.of_same_people = true;
  return Target(target.job,
                CostModel(std::move(cluster), target.costs->calibration(), std::move(framework),
                          std::move(fitted)),
                target.devices, target.reserve);
}

}  // namespace plimsoll
