// The report page consists of these sections, each as HTML.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plan/measured.h"
#include "plan/plan.h"
#include "reports/compare.h"

namespace plimsoll {

/// The inputs of the page. `comparison` is there exactly when `measured` is.
struct ReportInput {
  const Plan& plan;
  const std::optional<Measured>& measured;
  std::optional<Comparison> comparison;
};

std::string header_html(const ReportInput& input);  ///< title, verdict, key figures
/// the plan in words, its strategy, and where time goes
std::string plan_section(const ReportInput& input);
std::string comparison_section(const ReportInput& input);  ///< times, op kinds, bytes
std::string timeline_section(const ReportInput& input);
std::string memory_section(const ReportInput& input);
std::string training_section(const ReportInput& input);  ///< losses and step times of the run
std::string search_section(const ReportInput& input);    ///< runners-up and the searched space
std::string sources_section(const ReportInput& input);   ///< provenance, peak, digests

/// Returns in a few words what a key of a strategy chooses, and an empty text for an unknown key.
std::string_view meaning_of(std::string_view strategy_key);

/// The style sheet of the page.
std::string_view report_style();

}  // namespace plimsoll
