// The report is one self-contained HTML page of a plan.
#pragma once

#include <optional>
#include <string>

#include "plan/measured.h"
#include "plan/plan.h"
#include "planner/explain/report_explanation.h"
#include "reports/compare.h"

namespace plimsoll {

/// All that a page shows.
struct ReportInput {
  const Plan& plan;
  const std::optional<Measured>& measured;  ///< none: only the predicted half
  double tolerance = 0.30;
  const Explanation* explanation = nullptr;  ///< none: sections that need it say why
  std::string not_explained{};               ///< a clause after "because"
  /// The export that starts the plan in its framework: its target (`planner export --to`), its
  /// text, and what of the plan it does not state. Empty: no export is for the framework.
  std::string flags_target{}, flags{}, flags_lost{};
  std::optional<Comparison> comparison{};  ///< with a measurement; report_html() makes it
};

/// Returns the page: verdict, plan, predicted against measured, pipeline timeline, memory, plans
/// that lost, sensitivity, and where the numbers come from. It reaches for nothing outside, and can
/// be read without its script.
std::string report_html(ReportInput input);
std::string report_html(const Plan& plan, const std::optional<Measured>& measured,
                        double tolerance);

}  // namespace plimsoll
