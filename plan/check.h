// This check validates any plan without simulator or planner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace plimsoll {

struct Violation {
  std::string rule;     ///< name of the broken rule
  std::string message;  ///< what was found and what is right
};

struct Rule {
  std::string_view name;
  std::string_view sentence;  ///< what must hold
};

/// All rules, in the order in which they are checked.
std::vector<Rule> rules();

/// Returns every violation, and nothing for a valid plan. It rebuilds the Programs from (job,
/// strategy, framework).
std::vector<Violation> check(const Plan& plan);

}  // namespace plimsoll
