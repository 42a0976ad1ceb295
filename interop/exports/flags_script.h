// Flags script: a plan as a shell script that starts another framework by its flags, or as the
// framework's configuration file.
#pragma once

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
  std::vector<std::string> environment;  ///< "NAME=VALUE"
  Job job;                               ///< as the flags state it, with the padded vocabulary
  Strategy strategy;
  Framework framework;
  std::vector<ChoiceBeside> beside;
  std::vector<LostChoice> lost;  ///< empty where the flags state the rest of the plan
};

/// Writes the flags of a plan and reads them back. Fields without effect on the plan's Programs are
/// not lost. Throws InputError at `file` where the flags state no such job.
PlanFlags flags_of(const Plan& plan, const FlagTable& table, const std::string& file);

/// Returns the script of a table of flags. It takes further flags as arguments.
std::string flags_script(const Plan& plan, const FlagTable& table, const PlanFlags& flags);
/// Returns the file of a table of a document's keys.
std::string flags_document(const Plan& plan, const FlagTable& table, const PlanFlags& flags);
/// Returns the comments in front of it: how it is started, what else has to be stated, in which
/// order ranks are numbered, and what the plan has that the file does not state.
std::vector<std::string> document_comments(const Plan& plan, const FlagTable& table,
                                           const PlanFlags& flags);

}  // namespace plimsoll
