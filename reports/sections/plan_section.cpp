// The plan in words, its strategy, and where the predicted step goes.
#include <fmt/format.h>

#include <array>

#include "passes/strategy/strategy_fields.h"
#include "plan/filling.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

/// Returns a value that may break behind the characters that join its parts.
std::string breakable(std::string_view value) {
  std::string html;
  for (const char c : escaped(value)) {
    html += c;
    if (c == '+' || c == ',' || c == '-') html += "<wbr>";
  }
  return html;
}

std::string strategy_table(const Plan& plan) {
  std::vector<std::vector<Cell>> rows;
  const auto row = [&](std::string_view key, const std::string& value, const std::string& meaning) {
    Cell name = heading_cell(key);
    name.style = "key";
    rows.push_back({name, {breakable(value), "value", false}, text_cell(meaning)});
  };
  for (const StrategyField& field : shown_fields(plan.strategy)) {
    std::string meaning = meaning_of(field.key, field.value);
    if (field.key == "layer_split") {
      meaning += " Here: " + counts_text(layers_per_part(plan.job, plan.strategy)) + ".";
    }
    row(field.key, field.value, meaning);
    if (field.key == "micro_batch") {
      row("micro-batches", grouped(micro_batches(plan.job, plan.strategy)), "per step and replica");
    }
  }
  return table("Strategy", {{"Key", ""}, {"Value", ""}, {"Meaning", ""}}, rows) +
         "<p class=\"note\">Of the keys after layer_split only those are listed that are not at "
         "their default.</p>\n";
}

struct Part {
  std::string_view style, label;
  Seconds time;
};

std::array<Part, 7> parts_of(const Breakdown& breakdown) {
  return {{{"forward", "forward", breakdown.forward},
           {"recompute", "recompute", breakdown.recompute},
           {"backward", "backward", breakdown.backward},
           {"optimizer", "optimizer", breakdown.optimizer},
           {"transfer", "exposed communication", breakdown.exposed_communication},
           {"bubble", "bubble", breakdown.bubble},
           {"dispatch", "dispatch", breakdown.dispatch}}};
}

/// One bar of the whole step, and the same numbers as a table.
std::string breakdown_html(const Prediction& prediction) {
  const double step = prediction.step_time.value();
  std::vector<BarPart> bar;
  std::vector<std::vector<Cell>> rows;
  for (const Part& part : parts_of(prediction.breakdown)) {
    const double share = step > 0 ? part.time.value() / step : 0;
    if (share < 0.0005) continue;  // 0.0 %
    bar.push_back({part.style, share});
    rows.push_back({swatch_cell(part.style, part.label), exact_cell(part.time), share_cell(share)});
  }
  return figure("Where the predicted step goes, on the rank that computes longest",
                stacked_bar(bar) +
                    table("", {{"Part", ""}, {"Time", "number", "s"}, {"Share", "number"}}, rows));
}

/// The script or the file that starts the plan, with a button that copies it.
std::string flags_html(const ReportInput& input) {
  if (input.flags.empty()) return "";
  std::string html = fmt::format(
      "<h3>To start it</h3>\n<div class=\"flags\">"
      "<button type=\"button\" class=\"copy\" data-copy=\"flags\" hidden>copy</button>"
      "<pre id=\"flags\" tabindex=\"0\">{}</pre></div>\n",
      escaped(input.flags));
  if (!input.flags_lost.empty())
    html += fmt::format("<p class=\"note\">It does not state all of the plan: {}.</p>\n",
                        escaped(input.flags_lost));
  return html + fmt::format(
                    "<p class=\"note\">This is what <code>planner export PLAN --to {}</code> "
                    "writes.</p>\n",
                    escaped(input.flags_target));
}

std::string stages_table(const Plan& plan) {
  constexpr std::size_t kMostRows = 12;
  const auto layers = layers_per_stage(plan.job, plan.strategy);
  const auto& stages = plan.prediction.stages;
  const std::vector<Filling> fillings = fillings_of(plan);
  const bool arena = plan.framework.memory.allocator.kind == AllocatorKind::arena;
  std::vector<std::vector<Cell>> rows;
  bool several = false;
  for (const AlikeStages& alike : alike_stages(fillings, kMostRows)) {
    const StagePrediction& stage = stages[alike.fullest];
    const Filling& filling = fillings[alike.fullest];
    const auto of_stage = std::size_t(stage.stage);
    several = several || alike.first != alike.last;
    rows.push_back({heading_cell(name_of(alike, stages)),
                    number_cell(of_stage < layers.size() ? grouped(layers[of_stage]) : ""),
                    exact_cell(stage.peak), exact_cell(filling.reserved),
                    exact_cell(filling.outside), exact_cell(filling.taken()),
                    exact_cell(filling.capacity), number_cell(filled_text(filling))});
  }
  const std::string note =
      several ? "<p class=\"note\">Of stages that are alike the fullest is shown.</p>\n" : "";
  return table("Predicted memory of a rank",
               {{"", ""},
                {"Layers", "number"},
                {"Live peak", "number", "bytes"},
                {arena ? "Arena" : "Reserved", "number", "bytes"},
                {"+ context", "number", "bytes"},
                {"= taken", "number", "bytes"},
                {"of", "number", "bytes"},
                {"Filled", "number"}},
               rows) +
         note;
}

}  // namespace

std::string plan_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  std::string content = fmt::format("<p>{} {}.</p>\n", escaped(job_sentence(plan)),
                                    escaped(layout_text(plan.job, plan.framework, plan.strategy)));
  content += "<div class=\"columns\">\n<div>" + strategy_table(plan) + "</div>\n" + "<div>" +
             breakdown_html(plan.prediction) + flags_html(input) + "</div>\n</div>\n" +
             stages_table(plan);
  return section("plan", "The plan", content);
}

}  // namespace plimsoll
