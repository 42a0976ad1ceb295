// The plans that were simulated, by step time and memory, each with the reason why it was not
// chosen.
#include <fmt/format.h>

#include <algorithm>

#include "passes/strategy/strategy_fields.h"
#include "plan/filling.h"
#include "reports/markup.h"
#include "reports/plan_words.h"
#include "reports/plots.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

std::string against(const StepRatio& ratio) {
  return fmt::format("{:.2f} to {:.2f} times the chosen step{}", ratio.low, ratio.high,
                     ratio.tied ? ", so the two cannot be told apart" : "");
}

/// The points of a plot, one for each strategy.
struct PlanPoints {
  const Plan& plan;
  std::vector<PlanPoint> points;
  std::vector<Strategy> strategies;

  void add(std::string_view style, const Strategy& strategy, Seconds step, Bytes memory,
           const std::string& why) {
    if (std::ranges::find(strategies, strategy) != strategies.end()) return;
    strategies.push_back(strategy);
    const std::string fields = fields_text(differing_fields(strategy, plan.strategy));
    points.push_back(
        {style, step, memory,
         fmt::format("{}{}: {}{}", step > Seconds() ? to_text(step) + ", " : "", to_text(memory),
                     why, fields.empty() ? "" : "; differs in " + fields)});
  }
};

std::vector<PlanPoint> points_of(const ReportInput& input, const std::vector<Filling>& fillings) {
  const Plan& plan = input.plan;
  PlanPoints all{plan, {}, {}};
  all.add("chosen", plan.strategy, plan.prediction.step_time,
          fillings[fullest_of(fillings)].taken(), "the chosen plan");
  for (const OtherPlan& point : plan.pareto) {
    all.add("front", point.strategy, point.step_time, point.taken,
            "no plan with as little memory is faster; " + against(point.ratio));
  }
  for (const RunnerUp& loser : plan.runners_up) {
    all.add("loser", loser.strategy, loser.step_time, loser.taken,
            loss_words(loser) + "; " + against(loser.ratio));
  }
  if (input.explanation == nullptr) return std::move(all.points);
  for (const AssessedChange& one : input.explanation->sensitivity.changes) {
    if (one.need == Bytes()) continue;  // it is not legal
    const bool runs = one.outcome == ChangeOutcome::runs;
    all.add(runs ? "neighbour" : "misfit", one.strategy, one.step_time, one.need,
            runs ? against(one.ratio) : std::string(to_text(one.outcome)));
  }
  return std::move(all.points);
}

}  // namespace

std::string plans_html(const ReportInput& input) {
  const std::vector<Filling> fillings = fillings_of(input.plan);
  if (fillings.empty()) return "";
  const std::vector<PlanPoint> points = points_of(input, fillings);
  if (points.size() < 2) return "";
  const auto has = [&](std::string_view style) {
    return std::ranges::find(points, style, &PlanPoint::style) != points.end();
  };
  std::vector<LegendEntry> entries = {{"chosen", "chosen"}};
  if (has("front")) entries.push_back({"front", "on the Pareto front"});
  if (has("loser")) entries.push_back({"loser", "runner-up"});
  if (has("neighbour")) entries.push_back({"neighbour", "one choice changed"});
  if (has("misfit")) entries.push_back({"misfit", "does not fit"});
  std::vector<std::vector<Cell>> rows;
  for (const PlanPoint& point : points) {
    rows.push_back({point.step_time > Seconds() ? exact_cell(point.step_time) : number_cell(""),
                    exact_cell(point.memory), text_cell(point.why)});
  }
  return "<div class=\"columns\">\n<div>" + legend(entries) +
         plans_svg("plans-chart", "Step time and memory of plans", points,
                   fillings[fullest_of(fillings)].capacity) +
         "</div>\n<div>\n<p class=\"chosen-point\" data-details=\"plans-chart\" "
         "aria-live=\"polite\">Each point says why it was not chosen: with the pointer, or with the "
         "arrow keys in the chart.</p>\n" +
         folded(fmt::format("Table of the {} plans in the chart", points.size()),
                table("",
                      {{"Step time", "number", "s"},
                       {"Memory", "number", "bytes"},
                       {"What it is, and why it was not chosen", ""}},
                      rows)) +
         "</div>\n</div>\n";
}

}  // namespace plimsoll
