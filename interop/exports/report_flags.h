// Report flags: what starts a plan in its framework, for its page.
#pragma once

#include <optional>
#include <string>

#include "interop/exports/flags_script.h"
#include "plan/plan.h"

namespace plimsoll {

/// A PlanExport is the table that states a plan best, with the plan's flags.
struct PlanExport {
  const FlagTable* table;
  PlanFlags flags;
};

/// Returns the export that loses least of a plan. Among equals the framework's own flags come
/// before files that other programs read for it. Returns nothing if no table is for the plan's
/// framework, or none states its job.
std::optional<PlanExport> plan_export(const Plan& plan);

/// The file or the script that `planner export PLAN --to TARGET` writes.
struct ReportFlags {
  std::string target, text;
  std::string lost;  ///< what it does not state; empty: it states the whole plan
};

/// Returns nothing when no export is for the plan's framework, or when it has no such job.
std::optional<ReportFlags> report_flags(const Plan& plan);

}  // namespace plimsoll
