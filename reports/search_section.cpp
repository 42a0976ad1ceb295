// What lost and why, what was searched, and where the numbers come from.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/report_sections.h"

namespace plimsoll {
namespace {

struct Field {
  std::string_view key;
  std::string value;
};

std::array<Field, 8> fields_of(const Strategy& s) {
  return {{{"mp", grouped(s.mp)},
           {"pp", grouped(s.pp)},
           {"dp", grouped(s.dp)},
           {"sharding_degree", grouped(s.sharding_degree)},
           {"micro_batch", grouped(s.micro_batch)},
           {"recompute", std::string(to_text(s.recompute))},
           {"grad_bucket_bytes", to_text(s.grad_bucket_bytes)},
           {"send_slots", grouped(s.send_slots)}}};
}

std::string loses_by(const RunnerUp& runner_up) {
  if (runner_up.term == "tie") return "nothing: the canonical order decides";
  if (runner_up.term != "memory") {
    return fmt::format("{}, {} more", runner_up.term, to_text(runner_up.term_time));
  }
  return fmt::format("memory, {} more at equal time", to_text(runner_up.term_bytes));
}

std::vector<Cell> runner_up_row(const RunnerUp& runner_up, const Plan& plan) {
  std::vector<Cell> row;
  const auto chosen = fields_of(plan.strategy);
  const auto own = fields_of(runner_up.strategy);
  for (std::size_t i = 0; i < own.size(); ++i) {
    // What differs from the chosen plan stands out.
    Cell cell = number_cell(own[i].value);
    if (own[i].value != chosen[i].value) cell.html = "<strong>" + cell.html + "</strong>";
    row.push_back(cell);
  }
  row.push_back(number_cell(to_text(runner_up.step_time)));
  row.push_back(number_cell(signed_error({runner_up.step_time, plan.prediction.step_time})));
  row.push_back(number_cell(to_text(runner_up.peak)));
  row.push_back(text_cell(loses_by(runner_up)));
  return row;
}

std::vector<Cell> chosen_row(const Plan& plan) {
  Bytes peak;
  for (const StagePrediction& stage : plan.prediction.stages) peak = std::max(peak, stage.peak);
  std::vector<Cell> row;
  for (const Field& field : fields_of(plan.strategy)) row.push_back(number_cell(field.value));
  row.push_back(number_cell(to_text(plan.prediction.step_time)));
  row.push_back(number_cell(""));
  row.push_back(number_cell(to_text(peak)));
  row.push_back({"<strong>chosen</strong>", "", false});
  return row;
}

std::string runners_up_table(const Plan& plan) {
  std::vector<Column> columns;
  for (const Field& field : fields_of(plan.strategy)) columns.push_back({field.key, "number key"});
  columns.insert(
      columns.end(),
      {{"Step time", "number"}, {"Slower", "number"}, {"Peak", "number"}, {"Loses by", ""}});
  std::vector<std::vector<Cell>> rows = {chosen_row(plan)};
  for (const RunnerUp& runner_up : plan.runners_up) rows.push_back(runner_up_row(runner_up, plan));
  return table("The chosen plan and the next best, all predicted; differences in bold", columns,
               rows);
}

std::string search_words(const SearchSummary& search) {
  std::string proof = "The chosen plan is proven best of the whole space.";
  if (!search.proven) {
    proof = fmt::format("{} were left when the time limit passed: {}.", grouped(search.unexplored),
                        search.gap > 0 ? fmt::format("a plan that is faster by up to {} may exist",
                                                     percent(1 - 1 / (1 + search.gap)))
                                       : "none of them is faster than the chosen plan");
  }
  return fmt::format(
      "<p>Searched by {}: of {} candidates {} were cut by bounds and {} simulated, of which {} did "
      "not fit. {}</p>\n",
      escaped(search.method), grouped(search.space), grouped(search.bounded),
      grouped(search.evaluated), grouped(search.infeasible), proof);
}

std::string cuts_table(const SearchSummary& search) {
  std::vector<std::vector<Cell>> rows;
  for (const auto* list : {&search.bounded_by, &search.pruned}) {
    for (const Pruned& entry : *list) {
      rows.push_back({text_cell(entry.reason), number_cell(grouped(entry.count))});
    }
  }
  if (rows.empty()) return "";
  return "<details><summary>Candidates that were not simulated</summary>\n" +
         table("Cut by bounds, then by rules", {{"Reason", ""}, {"Candidates", "number"}}, rows) +
         "</details>\n";
}

std::string pareto_table(const Plan& plan) {
  if (plan.pareto.size() < 2) return "";
  std::vector<Column> columns = {{"Step time", "number"}, {"Slower", "number"}, {"Peak", "number"}};
  for (const Field& field : fields_of(plan.strategy)) columns.push_back({field.key, "number key"});
  const auto chosen = fields_of(plan.strategy);
  std::vector<std::vector<Cell>> rows;
  for (const ParetoPlan& point : plan.pareto) {
    std::vector<Cell> row = {
        number_cell(to_text(point.step_time)),
        number_cell(signed_error({point.step_time, plan.prediction.step_time})),
        number_cell(to_text(point.peak))};
    const auto own = fields_of(point.strategy);
    for (std::size_t i = 0; i < own.size(); ++i) {
      Cell cell = number_cell(own[i].value);
      if (own[i].value != chosen[i].value) cell.html = "<strong>" + cell.html + "</strong>";
      row.push_back(cell);
    }
    rows.push_back(row);
  }
  return table("Pareto front: plans that no other beats in step time and peak; differences in bold",
               columns, rows);
}

std::string provenance_html(const Prediction& prediction) {
  std::string bar = "<div class=\"stack\" aria-hidden=\"true\">";
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < prediction.share_by_provenance.size(); ++i) {
    const std::string_view name = to_text(Provenance(i));
    const double share = prediction.share_by_provenance[i];
    if (share > 0) {
      bar += fmt::format("<span class=\"{}\" style=\"width:{:.3f}%\"></span>", name, 100 * share);
    }
    Cell label = heading_cell(name);
    label.html = fmt::format("<span class=\"swatch {}\"></span>{}", name, label.html);
    rows.push_back({label, number_cell(percent(share))});
  }
  return figure("What the predicted op time rests on",
                bar + "</div>\n" + table("", {{"Estimate", ""}, {"Share", "number"}}, rows));
}

std::vector<Cell> source_row(std::string_view what, const std::string& value, bool code) {
  Cell cell = text_cell(value);
  if (code) cell.style = "key";
  return {heading_cell(what), cell};
}

std::string sources_table(const ReportInput& input) {
  const Plan& plan = input.plan;
  std::vector<std::vector<Cell>> rows = {
      source_row(
          "peak that MFU is relative to",
          fmt::format("{}: {}", to_text(plan.prediction.peak_flops), plan.prediction.peak_source),
          false),
      source_row("framework",
                 fmt::format("{}: {}", plan.framework.name, plan.framework.sources.kernels), false),
      source_row("cluster", plan.cluster_digest, true),
      source_row("calibration",
                 plan.calibration_digest.empty() ? "none given" : plan.calibration_digest, true)};
  for (std::size_t i = 0; i < plan.program_digests.size(); ++i) {
    rows.push_back(
        source_row(fmt::format("program of stage {}", i), plan.program_digests[i], true));
  }
  if (input.measured) rows.push_back(source_row("plan", input.measured->plan_digest, true));
  return table("Sources and digests (SHA-256)", {{"", ""}, {"", ""}}, rows);
}

}  // namespace

std::string search_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  return section("search", "Runners-up, and why they lose",
                 search_words(plan.search) + runners_up_table(plan) + pareto_table(plan) +
                     cuts_table(plan.search));
}

std::string sources_section(const ReportInput& input) {
  return section("sources", "Where the numbers come from",
                 "<div class=\"columns narrow\">\n<div>" + provenance_html(input.plan.prediction) +
                     "</div>\n<div>" + sources_table(input) + "</div>\n</div>\n");
}

}  // namespace plimsoll
