// The sections that need the plan's cluster and calibration: tensors at the peak, communication,
// and what would change the step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "passes/strategy/strategy_fields.h"
#include "plan/filling.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/plots.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

/// Returns the cell of a bar that fills a share of its width.
Cell bar_cell(const std::vector<BarPart>& parts) { return {stacked_bar(parts), "bars", false}; }

std::string tensors_table(const StageMemory& peak) {
  constexpr std::size_t kMostNames = 40;
  std::vector<std::vector<Cell>> rows;
  Bytes rest = peak.stage.allocated;
  const double all = std::max(1.0, double(peak.stage.allocated.count()));
  for (const AliveTensors& one : peak.alive) {
    if (rows.size() == kMostNames) break;
    const double share = double(one.bytes.count()) / all;
    Cell name = heading_cell(one.name);
    name.style = "key";
    std::string role(to_text(one.role));
    std::ranges::replace(role, '_', ' ');
    rows.push_back({name, text_cell(role), exact_cell(one.count), exact_cell(one.bytes),
                    share_cell(share), bar_cell({{to_text(one.role), share}})});
    rest -= one.bytes;
  }
  std::string note;
  if (peak.alive.size() > kMostNames) {
    note = fmt::format("<p class=\"note\">{} more names have {} together.</p>\n",
                       peak.alive.size() - kMostNames, to_text(rest));
  }
  return table("",
               {{"Tensor", ""},
                {"Class", ""},
                {"Count", "number"},
                {"Bytes", "number", "bytes"},
                {"Share", "number"},
                {"", "bars"}},
               rows) +
         note;
}

/// Returns a row's bar on the scale of the longest row: exposed wait, exposed transfer, hidden.
Cell communication_bar(const Communication& one, double longest) {
  const auto share = [&](Picoseconds time) { return double(time.count()) / longest; };
  return bar_cell({{"wait", share(one.wait)},
                   {"transfer", share(one.transfer)},
                   {"hidden", share(one.hidden)}});
}

double percent_change(Seconds step, Seconds plan) { return step / plan - 1; }

std::string changed_words(const StepRatio& ratio) {
  return fmt::format("{}, {:.2f} to {:.2f}",
                     ratio.tied        ? "cannot be told apart"
                     : ratio.low > 1.0 ? "slower"
                                       : "faster",
                     ratio.low, ratio.high);
}

std::vector<TornadoRow> tornado_rows(const Sensitivity& found, Seconds step) {
  std::vector<TornadoRow> rows;
  for (const RateEffect& rate : found.rates) {
    if (!rate.is_there) continue;
    rows.push_back({std::string(to_text(rate.rate)),
                    {{"slower", percent_change(rate.slower, step)},
                     {"faster", percent_change(rate.faster, step)}}});
  }
  const auto reach = [](const TornadoRow& row) {
    double most = 0;
    for (const TornadoBar& bar : row.bars) most = std::max(most, std::abs(bar.change));
    return most;
  };
  std::ranges::stable_sort(rows, std::greater(), reach);
  for (const RateEffect& rate : found.rates) {
    if (rate.rate == Rate::network && rate.is_there)
      rows.push_back({"twice the network", {{"doubled", percent_change(rate.doubled, step)}}});
  }
  rows.push_back({"twice the memory", {{"doubled", percent_change(found.memory.step_time, step)}}});
  return rows;
}

std::string signed_cell_text(double change) {
  return std::abs(change) < 5e-5 ? "0 %" : fmt::format("{:+.2f} %", 100 * change);
}

Cell change_cell(Seconds step, Seconds plan) {
  const double change = percent_change(step, plan);
  return {signed_cell_text(change), "number", false, fmt::format("{:.6g}", change)};
}

std::string rates_table(const Sensitivity& found, Seconds step) {
  std::vector<std::vector<Cell>> rows;
  for (const RateEffect& rate : found.rates) {
    if (!rate.is_there) continue;
    rows.push_back({heading_cell(to_text(rate.rate)), change_cell(rate.slower, step),
                    change_cell(rate.faster, step), change_cell(rate.doubled, step)});
  }
  return table("Change of the step's time, when one rate changes and all else stays",
               {{"Rate", ""}, {"-10 %", "number"}, {"+10 %", "number"}, {"twice", "number"}}, rows);
}

std::string memory_words(const Plan& plan, const MemoryEffect& more) {
  if (more.strategy == plan.strategy) {
    return fmt::format("<p>With twice the memory {} this plan.</p>\n",
                       more.proven ? "the best plan is" : "no plan was found that is faster than");
  }
  return fmt::format(
      "<p>With twice the memory the best plan {} takes {} ({}): it differs in <code>{}</code>.</p>\n",
      more.proven ? "that there is" : "that was found", to_text(more.step_time),
      changed_words(more.ratio),
      escaped(fields_text(differing_fields(more.strategy, plan.strategy))));
}

std::string changes_table(const Plan& plan, const std::vector<AssessedChange>& changes) {
  std::vector<std::vector<Cell>> rows;
  for (const AssessedChange& one : changes) {
    const bool runs = one.outcome == ChangeOutcome::runs;
    const std::string outcome(to_text(one.outcome));
    Cell differs = text_cell(fields_text(differing_fields(one.strategy, plan.strategy)));
    differs.style = "key";
    rows.push_back({differs,
                    runs ? change_cell(one.step_time, plan.prediction.step_time) : number_cell(""),
                    one.need > Bytes() ? exact_cell(one.need) : number_cell(""),
                    text_cell(runs               ? changed_words(one.ratio)
                              : one.rule.empty() ? outcome
                                                 : outcome + ": " + one.rule)});
  }
  if (rows.empty()) return "";
  return table("One choice changed at a time, best first",
               {{"Changed to", ""},
                {"Step", "number"},
                {"Needs of a device", "number", "bytes"},
                {"Outcome; times the plan's step, 90 % interval", ""}},
               rows);
}

}  // namespace

std::string peak_tensors_html(const ReportInput& input) {
  if (input.explanation == nullptr) return "";
  const auto& stages = input.plan.prediction.stages;
  std::string html;
  const std::vector<Filling> fillings = fillings_of(input.plan);
  const std::size_t fullest = fillings.empty() ? 0 : fullest_of(fillings);
  for (const StageMemory& peak : input.explanation->peaks) {
    const std::string name = name_of(peak.stage);
    const bool open = fullest < stages.size() && name == name_of(stages[fullest]);
    html += fmt::format("<details{}><summary>{}: {} in {} names</summary>\n{}</details>\n",
                        open ? " open" : "", name, to_text(peak.stage.allocated), peak.alive.size(),
                        tensors_table(peak));
  }
  if (html.empty()) return "";
  return "<h3>Tensors alive at the peak</h3>\n<p class=\"note\">Of stages that are alike the "
         "fullest is shown.</p>\n" +
         html;
}

std::string communication_section(const ReportInput& input) {
  if (input.explanation == nullptr || input.explanation->communication.empty()) return "";
  const Explanation& found = *input.explanation;
  const double step = input.plan.prediction.step_time.value();
  double longest = 1;
  Picoseconds exposed, hidden;
  for (const Communication& one : found.communication) {
    longest = std::max(longest, double((one.wait + one.transfer + one.hidden).count()));
    exposed += one.wait + one.transfer;
    hidden += one.hidden;
  }
  std::vector<std::vector<Cell>> rows;
  for (const Communication& one : found.communication) {
    Cell kind = heading_cell(one.kind), axes = text_cell(one.axes);
    kind.style = axes.style = "key";
    const bool sends = one.count > 0;  // receives count as sends of the other rank
    rows.push_back({kind, axes, text_cell(one.link),
                    sends ? exact_cell(one.count) : number_cell(""),
                    sends ? exact_cell(one.sent) : number_cell(""), exact_cell(one.wait.seconds()),
                    exact_cell(one.transfer.seconds()), exact_cell(one.hidden.seconds()),
                    communication_bar(one, longest)});
  }
  std::string content = fmt::format(
      "<p>Rank {} of stage {} computes longest. In a step {} of its communication is exposed, which "
      "is {} of the step, and {} is hidden by compute.</p>\n",
      found.critical_rank, found.critical_stage, to_text(exposed.seconds()),
      percent(step > 0 ? exposed.seconds().value() / step : 0), to_text(hidden.seconds()));
  content += legend({{"wait", "waiting for other ranks"},
                     {"transfer", "exposed transfer"},
                     {"hidden", "hidden by compute"}});
  content += table("Communication of that rank, by collective and axes",
                   {{"Collective", ""},
                    {"Over", ""},
                    {"Link", ""},
                    {"Count", "number"},
                    {"Sent", "number", "bytes"},
                    {"Wait", "number", "s"},
                    {"Transfer", "number", "s"},
                    {"Hidden", "number", "s"},
                    {"", "bars"}},
                   rows);
  return section("communication", "Communication", content);
}

std::string sensitivity_section(const ReportInput& input) {
  if (input.explanation == nullptr) {
    if (input.not_explained.empty()) return "";
    return section(
        "sensitivity", "What would change the step",
        fmt::format("<p>Tensors at the peak, communication by collective, and what would "
                    "change the step are not shown: {}.</p>\n",
                    escaped(input.not_explained)));
  }
  const Sensitivity& found = input.explanation->sensitivity;
  const Seconds step = input.plan.prediction.step_time;
  std::string content = legend({{"slower", "10 % less of the rate"},
                                {"faster", "10 % more"},
                                {"doubled", "twice as much"}}) +
                        "<div class=\"columns\">\n<div>" +
                        tornado_svg("Change of the step's time", tornado_rows(found, step)) +
                        "</div>\n<div>" + rates_table(found, step) + "</div>\n</div>\n" +
                        memory_words(input.plan, found.memory) +
                        changes_table(input.plan, found.changes);
  return section("sensitivity", "What would change the step", content);
}

}  // namespace plimsoll
