// The report is one self-contained HTML page with plain SVG.
#pragma once

#include <optional>
#include <string>

#include "plan/measured.h"
#include "plan/plan.h"

namespace plimsoll {

/// Returns the page: verdict, plan, predicted against measured, pipeline timeline, memory curve.
/// Without a measurement it has only the predicted half. It uses no scripts from elsewhere and no
/// network.
std::string report_html(const Plan& plan, const std::optional<Measured>& measured,
                        double tolerance);

}  // namespace plimsoll
