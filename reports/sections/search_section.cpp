// The sections on plans that lost and why, on the search, and on where the numbers come from.
#include <fmt/format.h>

#include "passes/strategy/strategy_fields.h"
#include "plan/filling.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

/// Shares below this are 0.0 %, which no row is for.
constexpr double kLeastShown = 0.0005;

/// Every field in which it differs from the chosen plan, as --fix takes it.
Cell differences_cell(const Strategy& strategy, const Plan& plan) {
  if (strategy == plan.strategy) return {"<strong>chosen</strong>", "", false};
  return {escaped(fields_text(differing_fields(strategy, plan.strategy))), "key", false};
}

Cell ratio_cell(const StepRatio& ratio) {
  return text_cell(fmt::format("{}, {:.2f} to {:.2f}", relation_of(ratio), ratio.low, ratio.high));
}

std::vector<Cell> runner_up_row(const RunnerUp& runner_up, const Plan& plan) {
  return {exact_cell(runner_up.step_time),
          number_cell(signed_error({runner_up.step_time, plan.prediction.step_time})),
          ratio_cell(runner_up.ratio),
          exact_cell(runner_up.taken),
          text_cell(loss_words(runner_up)),
          differences_cell(runner_up.strategy, plan)};
}

std::vector<Cell> chosen_row(const Plan& plan) {
  return {exact_cell(plan.prediction.step_time),
          number_cell(""),
          text_cell(""),
          exact_cell(most_taken(plan)),
          text_cell(""),
          differences_cell(plan.strategy, plan)};
}

/// Says which plan is predicted to be faster, and why it is not recommended.
std::string fastest_words(const Plan& plan) {
  if (plan.oversubscribed) return "";
  if (!plan.fastest) return "<p>The chosen plan is the fastest by prediction.</p>\n";
  return fmt::format(
      "<p>The fastest prediction is {}, {} less than the chosen plan. It is not recommended for {}. "
      "It differs in <code>{}</code>.</p>\n",
      to_text(plan.fastest->step_time), percent(plan.fastest->gain),
      words_of(plan.fastest->unusual),
      escaped(fields_text(differing_fields(plan.fastest->strategy, plan.strategy))));
}

std::string runners_up_table(const Plan& plan) {
  std::vector<std::vector<Cell>> rows = {chosen_row(plan)};
  for (const RunnerUp& runner_up : plan.runners_up) rows.push_back(runner_up_row(runner_up, plan));
  return table("The chosen plan and the next best; all predicted",
               {{"Step time", "number", "s"},
                {"Slower", "number"},
                {"Times the chosen step, 90 % interval", ""},
                {"Takes of a device", "number", "bytes"},
                {"Why not chosen", ""},
                {"Differs from the chosen plan in", ""}},
               rows);
}

std::string search_words(const SearchSummary& search) {
  std::string proof = "The chosen plan is proven best of the whole space.";
  if (!search.proven) {
    proof = fmt::format("{} were left when the search ended: {}.", grouped(search.unexplored),
                        search.gap > 0 ? fmt::format("a plan that is faster by up to {} may exist",
                                                     percent(possible_gain(search)))
                                       : "none of them is faster than the chosen plan");
  }
  return fmt::format(
      "<p>Searched by branch and bound: of {} candidates {} were cut by bounds and {} simulated, of which {} did "
      "not fit. {}</p>\n",
      grouped(search.space), grouped(sum_of(search.bounded)), grouped(search.evaluated),
      grouped(search.infeasible), proof);
}

std::string cuts_table(const SearchSummary& search) {
  std::vector<std::vector<Cell>> rows;
  for (const auto& [reason, count] : left_out_by(search)) {
    rows.push_back({text_cell(reason), exact_cell(count)});
  }
  if (rows.empty()) return "";
  return "<details><summary>Candidates that were not simulated</summary>\n" +
         table("Cut by bounds, then by rules", {{"Reason", ""}, {"Candidates", "number"}}, rows) +
         "</details>\n";
}

std::string pareto_table(const Plan& plan) {
  if (plan.pareto.size() < 2) return "";
  std::vector<std::vector<Cell>> rows;
  for (const OtherPlan& point : plan.pareto) {
    rows.push_back({exact_cell(point.step_time),
                    number_cell(signed_error({point.step_time, plan.prediction.step_time})),
                    point.strategy == plan.strategy ? text_cell("") : ratio_cell(point.ratio),
                    exact_cell(point.taken), exact_cell(point.peak),
                    differences_cell(point.strategy, plan)});
  }
  return table(
      fmt::format("Pareto front of step time and of what is taken of a device (reserved, context "
                  "and communicators), in steps of {:.0f} % of it",
                  100 * kFrontSaving),
      {{"Step time", "number", "s"},
       {"Slower", "number"},
       {"Times the chosen step, 90 % interval", ""},
       {"Takes of a device", "number", "bytes"},
       {"Live peak", "number", "bytes"},
       {"Differs from the chosen plan in", ""}},
      rows);
}

/// Ops beyond what was measured or fitted; nothing where their time is 0.0 % of the step.
std::string extrapolated_table(const Prediction& prediction) {
  constexpr std::size_t kMostRows = 12;
  std::vector<std::vector<Cell>> rows;
  for (const OutsideRange& ops : prediction.extrapolated) {
    if (ops.share < kLeastShown || rows.size() == kMostRows) break;  // the largest come first
    rows.push_back({text_cell(ops.what), share_cell(ops.share)});
  }
  if (rows.empty()) return "";
  return table("Extrapolated beyond what was measured or fitted",
               {{"Ops", ""}, {"Of the step", "number"}}, rows);
}

std::string provenance_html(const Prediction& prediction) {
  std::vector<BarPart> bar;
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < prediction.share_by_provenance.size(); ++i) {
    const std::string_view name = to_text(Provenance(i));
    const double share = prediction.share_by_provenance[i];
    if (share < kLeastShown) continue;
    bar.push_back({name, share});
    rows.push_back({swatch_cell(name, name), share_cell(share)});
  }
  return figure("What the predicted op time rests on",
                stacked_bar(bar) + table("", {{"Estimate", ""}, {"Share", "number"}}, rows));
}

std::vector<Cell> source_row(std::string_view what, const std::string& value, bool code) {
  Cell cell = text_cell(value);
  if (code) cell.style = "key";
  return {heading_cell(what), cell};
}

std::string calibration_words(const Plan& plan) {
  std::string words = plan.origin.calibration_provenance;
  if (words.empty()) words = plan.calibration_digest.empty() ? "none given" : "a file";
  if (plan.origin.calibration_name.empty()) return words;
  return fmt::format("{}: {}", plan.origin.calibration_name, words);
}

std::string sources_table(const ReportInput& input) {
  const Plan& plan = input.plan;
  std::vector<std::vector<Cell>> rows;
  if (!plan.origin.command.empty()) {
    rows.push_back(source_row("command that makes it again", plan.origin.command, true));
  }
  rows.push_back(source_row("planner", plan.origin.version, false));
  if (!plan.origin.interval_basis.empty())
    rows.push_back(source_row("90 % interval from", plan.origin.interval_basis, false));
  rows.push_back(source_row("calibration", calibration_words(plan), false));
  rows.push_back(source_row(
      "peak that MFU is relative to",
      fmt::format("{}: {}", to_text(plan.prediction.peak_flops), plan.prediction.peak_source),
      false));
  rows.push_back(source_row(
      "framework", fmt::format("{}: {}", plan.framework.name, plan.framework.sources.kernels),
      false));
  return table("How it was made", {{"", ""}, {"", ""}}, rows);
}

std::string digests_table(const ReportInput& input) {
  const Plan& plan = input.plan;
  std::vector<std::vector<Cell>> rows = {source_row("cluster", plan.cluster_digest, true)};
  if (!plan.calibration_digest.empty()) {
    rows.push_back(source_row("calibration", plan.calibration_digest, true));
  }
  if (!plan.calibration_rest_digest.empty()) {
    rows.push_back(source_row("calibration of the rest", plan.calibration_rest_digest, true));
  }
  if (input.measured) rows.push_back(source_row("plan", input.measured->plan_digest, true));
  for (std::size_t i = 0; i < plan.program_digests.size(); ++i) {
    const auto& stages = plan.prediction.stages;
    rows.push_back(source_row(
        "program of " + (i < stages.size() ? name_of(stages[i]) : fmt::format("class {}", i)),
        plan.program_digests[i], true));
  }
  return "<details><summary>Digests (SHA-256) of files and programs</summary>\n" +
         table("", {{"", ""}, {"", ""}}, rows) + "</details>\n";
}

}  // namespace

std::string search_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  return section("search", "Runners-up, and why they lose",
                 search_words(plan.search) + fastest_words(plan) + plans_html(input) +
                     runners_up_table(plan) + pareto_table(plan) + cuts_table(plan.search));
}

std::string sources_section(const ReportInput& input) {
  return section("sources", "Where the numbers come from",
                 "<div class=\"columns narrow\">\n<div>" + provenance_html(input.plan.prediction) +
                     extrapolated_table(input.plan.prediction) + "</div>\n<div>" +
                     sources_table(input) + digests_table(input) + "</div>\n</div>\n");
}

}  // namespace plimsoll
