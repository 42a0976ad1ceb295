// Report answer: the page of a plan with its explanation, as the command line and the Python module
// make it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "planner/cli/answers.h"
#include "reports/sections/explanation.h"

namespace plimsoll {

/// The explanation of a plan, or why there is none.
struct Explained {
  std::optional<Explanation> explanation;
  std::string why_not;
};

/// Explains the plan with its cluster and calibration. When neither is given and they are not built
/// in, or this version predicts another step, there is no explanation. `progress` and `stop` may be
/// empty; they are those of ExplainRequest.
Explained explain_for_report(const Plan& plan, const ExplainQuestion& question,
                             const std::function<void(std::int64_t, std::int64_t)>& progress,
                             const std::function<bool()>& stop);

}  // namespace plimsoll
