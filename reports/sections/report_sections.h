// The report page consists of these sections, each as HTML.
#pragma once

#include <string>

#include "reports/sections/html.h"

namespace plimsoll {

std::string header_html(const ReportInput& input);  ///< title, verdict, key figures
/// the plan in words, its strategy, and where time goes
std::string plan_section(const ReportInput& input);
std::string comparison_section(const ReportInput& input);  ///< times, op kinds, bytes
std::string timeline_section(const ReportInput& input);
std::string memory_section(const ReportInput& input);
/// Names the tensors alive at the peak of each stage; empty without an explanation.
std::string peak_tensors_html(const ReportInput& input);
/// Shows communication by collective and axes; empty without an explanation.
std::string communication_section(const ReportInput& input);
/// Shows the step with other rates, twice the memory and other choices; empty without an
/// explanation.
std::string sensitivity_section(const ReportInput& input);
/// Shows the plans that were simulated by step time and memory, and why each was not chosen.
std::string plans_html(const ReportInput& input);
/// Shows what the calibration measured and what its fit found; empty without either.
std::string calibration_section(const ReportInput& input);
std::string training_section(const ReportInput& input);  ///< losses and step times of the run
std::string search_section(const ReportInput& input);    ///< runners-up and the searched space
std::string sources_section(const ReportInput& input);   ///< provenance, peak, digests

}  // namespace plimsoll
