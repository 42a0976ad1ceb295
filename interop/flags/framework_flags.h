// Framework flags are a framework's own command-line options for a job and a strategy.
#pragma once

#include <string>
#include <vector>

#include "interop/flags/flag_fields.h"
#include "interop/flags/flag_table.h"

namespace plimsoll {

/// Returns whether all conditions hold.
bool all_hold(const FlagFields& fields, const std::vector<FlagCondition>& conditions);
/// Returns whether all conditions of a row hold.
bool row_holds(const FlagFields& fields, const FlagRow& row);

struct WrittenRow {
  const FlagRow* row;  ///< of a table that outlives this
  std::vector<std::string> words;
};

/// Returns the rows of the table that hold and have flags, with their words. Each flag is there
/// once, and each key of a document.
std::vector<WrittenRow> rows_of(const FlagTable& table, const FlagFields& fields);
/// Returns the words of these rows alone.
std::vector<std::vector<std::string>> flags_of(const FlagTable& table, const FlagFields& fields);

/// Returns the framework's flags in one line, each once. They state what the strategy recomputes,
/// how layers are split unevenly, 8-bit products, and the types of gradients and optimizer state.
/// Degrees and sizes are not among them. The text is empty where no flags are needed or known.
std::string framework_flags(const Framework& framework, const Job& job, const Strategy& strategy);

}  // namespace plimsoll
