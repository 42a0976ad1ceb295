// Report flags: what starts a plan in its framework, for its page.
#pragma once

#include <optional>
#include <string>

#include "plan/plan.h"

namespace plimsoll {

/// The file or the script that `planner export PLAN --to TARGET` writes.
struct ReportFlags {
  std::string target, text;
  std::string lost;  ///< what it does not state; empty: it states the whole plan
};

/// Returns nothing when no export is for the plan's framework, or when it has no such job.
std::optional<ReportFlags> report_flags(const Plan& plan);

}  // namespace plimsoll
