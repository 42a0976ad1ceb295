// Explain text: writes explanations of a plan for a terminal.
#pragma once

#include <string>
#include <string_view>

#include "planner/explain/sensitivity.h"
#include "planner/explain/why_not.h"
#include "reports/text_lines.h"

namespace plimsoll {

/// The columns of labels in front of lines.
inline constexpr std::size_t kExplainLabel = 12;
/// Returns a line of an explanation behind its label.
inline std::string explain_line(std::string_view label, const std::string& text) {
  return labelled_line(label, text, kExplainLabel);
}

/// Says in some ten lines why a plan is best, what limits it and what would help most.
std::string explain_brief(const Plan& plan, const ExplainedStep& step, const Sensitivity& found);
/// Says this, then has tables of all that was tried.
std::string explain_text(const Plan& plan, const ExplainedStep& step, const Sensitivity& found);

/// Says in some ten lines what the asked choices cost against the plan, and by which terms.
std::string why_not_brief(const Target& target, const WhyNot& answer);
/// Returns the brief answer, then both plans term by term, term by term.
std::string why_not_text(const Target& target, const WhyNot& answer);

/// Says in a few lines what a step is spent on, from the largest part to the smallest, which stage
/// computes longest, and which is fullest.
std::string limits_text(const ExplainedStep& step);
/// Returns the name of a collective and its group with the field's words for the axes: "all_gather
/// over TP".
std::string field_words(std::string_view group);
/// Returns "23.9 s (90 % interval 23.1 s to 24.8 s), MFU 64.2 %".
std::string step_words(const Prediction& prediction);

/// Returns "+1.2 % (-3.0 to +5.6 %)". Behind it stands ", slower" or ", faster" unless the interval
/// of the ratio holds 1.
std::string ratio_text(Seconds step, Seconds plan, const StepRatio& ratio);

/// Returns a row of a table of changes: how much longer a step of `own` gets, or why the change
/// does not run, the memory that it takes of a device, and the fields in which it differs.
std::string change_row(const AssessedChange& change, const Strategy& strategy, Seconds own);

/// A line of the table of terms: a name, and the time in each step. Each step's times sum to it.
struct TermRow {
  std::string name;  ///< "forward", "all_gather over mp (nvlink), wait", "bubble"
  std::vector<Picoseconds> times;
};
/// A step of the table, with the head of its column.
struct TermColumn {
  const char* head;
  const ExplainedStep* step;
};
/// Returns the table of terms, with the difference between the first and the last step.
std::string terms_text(const std::vector<TermColumn>& columns);
/// Returns the terms of steps. Communications of one kind over one group and link are one row.
std::vector<TermRow> term_rows(std::span<const ExplainedStep* const> steps);

}  // namespace plimsoll
