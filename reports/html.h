// The report: one self-contained HTML page with plain SVG.
#pragma once

#include <optional>
#include <string>

#include "plan/measured.h"
#include "plan/plan.h"

namespace plimsoll {

/// Verdict, plan, predicted against measured, pipeline timeline, memory curve. Without a
/// measurement only the predicted half. No scripts from elsewhere, no network.
std::string report_html(const Plan& plan, const std::optional<Measured>& measured,
                        double tolerance);

}  // namespace plimsoll
