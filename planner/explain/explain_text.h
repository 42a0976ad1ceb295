// Explain text: writes explanations of a plan for a terminal.
#pragma once

#include <string>

#include "planner/explain/sensitivity.h"
#include "planner/explain/why_not.h"

namespace plimsoll {

/// Says in ten lines why a plan is best, what limits it and what would help most. Then come tables
/// of all that was tried.
std::string explain_text(const Plan& plan, const ExplainedStep& step, const Sensitivity& found);

/// Sets the asked choices beside the plan, term by term.
std::string why_not_text(const Target& target, const WhyNot& answer);

/// Says in five lines what a step is spent on, from the largest part to the smallest, which stage
/// computes longest, and which is fullest.
std::string limits_text(const ExplainedStep& step);

/// Returns "+1.2 % (-3.0 to +5.6 %), cannot be told apart", where the interval of the ratio holds
/// 1; else "slower" or "faster" stands behind it.
std::string ratio_text(Seconds step, Seconds plan, const StepRatio& ratio);

/// A line of the table of terms: a name, and the time in each step. Each step's times sum to it.
struct TermRow {
  std::string name;  ///< "forward", "all_gather over mp (nvlink), wait", "bubble"
  std::vector<Picoseconds> times;
};
/// Returns the terms of steps. Communications of one kind over one group and link are one row.
std::vector<TermRow> term_rows(std::span<const ExplainedStep* const> steps);

}  // namespace plimsoll
