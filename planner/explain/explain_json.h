// Explain JSON: writes explanations of a plan as `planner explain --json` prints them.
#pragma once

#include <string>

#include "base/json.h"
#include "planner/explain/sensitivity.h"
#include "planner/explain/why_not.h"

namespace plimsoll {

/// Returns a strategy with its step, the step's terms and its memory.
Json step_json(const ExplainedStep& step);
/// Returns a change with what came of it. A change that is illegal has its rule, and no time.
Json change_json(const AssessedChange& change);

/// Returns the step of the plan with its terms, and what would change it.
std::string explain_json(const Plan& plan, const ExplainedStep& step, const Sensitivity& found);
/// Returns the asked choices against the plan. What does not exist is null.
std::string why_not_json(const WhyNot& answer);

}  // namespace plimsoll
