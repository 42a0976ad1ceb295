// Flag tables say how frameworks spell jobs and strategies on their command lines. They are the
// files of models/presets/flags, and docs/reference/flags.md describes their rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// A FlagCondition is "KEY=VALUE" or, where it differs, "KEY!=VALUE". The value is a text, or
/// "{KEY}" for the value of another field.
struct FlagCondition {
  std::string key, value;
  bool differs = false;
};

struct FlagRow {
  enum class Kind {
    flag,    ///< written where the conditions hold; where it is read, they are true
    alias,   ///< read like a flag, and never written
    absent,  ///< names options; where none of them is given, the conditions are true
  };
  Kind kind = Kind::flag;
  std::vector<FlagCondition> when;
  /// The option with its values. "{KEY}" and "{KEY:UNIT}" stand for the value of a field, "{}" for
  /// any value.
  std::vector<std::string> words;
  bool shown = false;  ///< whether the line of `planner plan` has it
  std::string note;    ///< what a reader of the flag assumes
};

/// RefusedFlags say what no job, strategy or framework states. A name may end with "*".
struct RefusedFlags {
  std::vector<std::string> options;
  std::string because;
};

/// A FlagTarget is what `planner export --to NAME` writes for.
struct FlagTarget {
  std::string name, version;
  std::string program;  ///< the script that takes the flags
};

struct FlagTable {
  std::vector<std::string> frameworks;  ///< the frameworks that take these flags
  std::optional<FlagTarget> target;
  std::vector<FlagRow> rows;         ///< in the order in which they are written and read
  std::vector<FlagRow> environment;  ///< rows whose one word is "NAME=VALUE"
  std::vector<RefusedFlags> refused;
};

/// Returns all tables, ordered by the names of their files.
const std::vector<FlagTable>& flag_tables();
/// Returns the table of the framework of that name, or null where there is none.
const FlagTable* flag_table_of(std::string_view framework);
/// Returns the table for `planner export --to TARGET`, or null where there is none.
const FlagTable* flag_table_for(std::string_view target);

/// Returns the text as one word of a shell, in quotes where it needs them.
std::string shell_word(std::string_view text);

}  // namespace plimsoll
