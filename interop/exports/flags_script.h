// Flags script: a plan as a shell script that starts another framework by its flags, or as the
// framework's configuration file, and which of these loses least of the plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/flags/flag_fields.h"
#include "interop/flags/flag_table.h"
#include "plan/plan.h"

namespace plimsoll {

/// A LostChoice is a field of the plan that the flags do not state, with what they state instead.
struct LostChoice {
  std::string key, planned, nearest;
};

/// A ChoiceBeside is a field of the plan that the program has from elsewhere than these flags.
struct ChoiceBeside {
  std::string key, planned, because;
};

/// Flags of a plan, and what comes out when they are read back.
struct PlanFlags {
  FlagFields planned;  ///< what is to be stated
  std::vector<std::vector<std::string>> flags;
  std::vector<std::string> environment;             ///< "NAME=VALUE"
  std::vector<std::pair<std::string, Json>> trial;  ///< settings of a trial; empty: it trains
  Job job;  ///< as the flags state it, with the padded vocabulary
  Strategy strategy;
  Framework framework;
  std::vector<ChoiceBeside> beside;
  std::vector<LostChoice> lost;  ///< empty where the flags state the rest of the plan
};

/// Writes the flags of a plan and reads them back. Fields without effect on the plan's Programs are
/// not lost. Throws InputError at `file` where the flags state no such job.
PlanFlags flags_of(const Plan& plan, const FlagTable& table, const std::string& file);

/// Returns the settings with which the target runs `steps` steps and logs each.
std::vector<std::pair<std::string, Json>> trial_settings(const FlagTarget& target,
                                                         std::int64_t steps);

/// Returns the script of a table of flags. It takes further flags as arguments.
std::string flags_script(const Plan& plan, const FlagTable& table, const PlanFlags& flags);
/// Returns the file of a table of a document's keys.
std::string flags_document(const Plan& plan, const FlagTable& table, const PlanFlags& flags);
/// Returns the comments in front of it: how it is started, what else has to be stated, in which
/// order ranks are numbered, and what the plan has that the file does not state.
std::vector<std::string> document_comments(const Plan& plan, const FlagTable& table,
                                           const PlanFlags& flags);

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
