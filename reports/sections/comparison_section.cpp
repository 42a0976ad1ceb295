// Predicted against measured: times, op kinds, bytes per rank and class.
#include <fmt/format.h>

#include <algorithm>

#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

std::vector<Cell> time_row(std::string_view label, const TimePair& time) {
  return {heading_cell(label), exact_cell(time.predicted), exact_cell(time.measured),
          number_cell(signed_error(time))};
}

/// Two bars of one scale, predicted above measured.
Cell pair_of_bars(const TimePair& time, Seconds most) {
  const auto width = [&](Seconds value) {
    return most.value() > 0 ? std::max(2.0, 1000 * (value / most)) : 0.0;
  };
  return {fmt::format("<svg class=\"pair-of-bars\" viewBox=\"0 0 1000 11\" "
                      "preserveAspectRatio=\"none\" aria-hidden=\"true\">"
                      "<rect class=\"interpolated\" width=\"{:.1f}\" height=\"5\"/>"
                      "<rect class=\"measured\" y=\"6\" width=\"{:.1f}\" height=\"5\"/></svg>",
                      width(time.predicted), width(time.measured)),
          "bars", false};
}

/// Kinds by measured time: first those that matter to the step, then the rest, which few look for.
struct Kinds {
  std::vector<std::vector<Cell>> first, rest;
};

Kinds kinds_of(const Comparison& comparison) {
  std::vector<KindComparison> ops = comparison.ops;
  std::stable_sort(ops.begin(), ops.end(), [](const KindComparison& a, const KindComparison& b) {
    return a.time.measured > b.time.measured;
  });
  Seconds most;
  for (const KindComparison& op : ops) {
    most = std::max({most, op.time.predicted, op.time.measured});
  }
  Kinds kinds;
  for (const KindComparison& op : ops) {
    std::vector<Cell> row = time_row(to_text(op.kind), op.time);
    row[0].style = "key";
    row.push_back(pair_of_bars(op.time, most));
    const bool matters = std::max(op.time.predicted, op.time.measured) >= 0.02 * most;
    (matters ? kinds.first : kinds.rest).push_back(std::move(row));
  }
  return kinds;
}

std::string times_table(const Comparison& comparison) {
  const std::vector<Column> columns = {{"", "label"},
                                       {"Predicted", "number", "s"},
                                       {"Measured", "number", "s"},
                                       {"Error", "number"},
                                       {"Predicted above measured", "bars"}};
  std::vector<std::vector<Cell>> rows = {
      time_row("step time", comparison.step_time),
      time_row("exposed communication: wait", comparison.exposed_wait),
      time_row("exposed communication: transfer", comparison.exposed_transfer)};
  for (std::vector<Cell>& row : rows) row.push_back({"", "bars", false});
  rows.push_back({text_cell("By op kind, mean over ranks")});
  const Kinds kinds = kinds_of(comparison);
  rows.insert(rows.end(), kinds.first.begin(), kinds.first.end());
  std::string html = table("Time per step", columns, rows);
  if (kinds.rest.empty()) return html;
  return html +
         fmt::format(
             "<details><summary>{} more op kinds, each under 2 % of the longest</summary>\n",
             kinds.rest.size()) +
         table("", columns, kinds.rest) + "</details>\n";
}

/// Predicted, and below it measured with its mark.
Cell bytes_cell(const BytesPair& pair) {
  const std::string predicted = grouped(pair.predicted.count());
  const std::string measured = grouped(pair.measured.count());
  const bool equal = pair.predicted == pair.measured;
  return {fmt::format("<span class=\"pair\">{}</span><span class=\"pair {}\">{} {}</span>",
                      predicted, equal ? "equal" : "differs", equal ? "=" : "\u2260", measured),
          "number", false};
}

/// Classes that hold bytes on some rank, on either side.
std::vector<std::size_t> used_roles(const Comparison& comparison) {
  std::vector<std::size_t> roles;
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    if (std::any_of(comparison.ranks.begin(), comparison.ranks.end(), [&](const RankComparison& r) {
          return r.by_role[role].predicted != Bytes() || r.by_role[role].measured != Bytes();
        })) {
      roles.push_back(role);
    }
  }
  return roles;
}

std::string bytes_table(const Comparison& comparison) {
  const std::vector<std::size_t> roles = used_roles(comparison);
  std::vector<Column> columns = {{"Rank", ""}, {"peak", "number"}};
  for (std::size_t role : roles) columns.push_back({to_text(TensorRole(role)), "number"});
  std::vector<std::vector<Cell>> rows;
  for (const RankComparison& rank : comparison.ranks) {
    rows.push_back({heading_cell(fmt::format("rank {}", rank.rank)), bytes_cell(rank.peak)});
    for (std::size_t role : roles) rows.back().push_back(bytes_cell(rank.by_role[role]));
  }
  return table("Bytes at the peak, per rank and class: predicted, and below it measured", columns,
               rows);
}

}  // namespace

std::string comparison_section(const ReportInput& input) {
  if (!input.comparison) return "";
  const Comparison& comparison = *input.comparison;
  std::string content;
  if (!comparison.makes_timing_claim) {
    content += fmt::format(
        "<p class=\"note\">Times are shown, but nothing is claimed about them: {}.</p>\n",
        escaped(comparison.no_claim_reason));
  }
  if (comparison.timeline_calls) {
    content += fmt::format(
        "<p class=\"note\">The plan is for more than {} devices and shows whole calls: of "
        "predicted ops only those between calls are counted.</p>\n",
        kMostDevicesByOp);
  }
  content += times_table(comparison) + bytes_table(comparison);
  return section("comparison", "Predicted against measured", content);
}

}  // namespace plimsoll
