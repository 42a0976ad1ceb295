// Reads a framework's flags: what they say of a job, a strategy and the framework.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "interop/flags/flag_fields.h"
#include "interop/flags/flag_table.h"

namespace plimsoll {

struct GivenWord {
  std::string text;
  std::string unknown = {};  ///< why the text is not known; empty: it is
};

/// An option with the words behind it, where it stands.
struct GivenFlag {
  std::string option;  ///< "--num-layers"
  std::vector<GivenWord> words;
  std::int64_t line = 0;  ///< 0: not in a file, or not known
};

/// An option that no table has, or a variable that may hold options: it may change the model,
/// memory and time.
struct UnknownFlag {
  std::string option;     ///< "--conv-gate", "$MORE_ARGS"
  std::int64_t line = 0;  ///< as GivenFlag has it
  std::string why = {};   ///< why a variable's options are not read; empty: an option
  bool operator==(const UnknownFlag&) const = default;
};

/// Stands for a flag where no flag states a field.
inline constexpr std::string_view kByFramework = "the framework";

struct FlagReading {
  FlagFields fields;
  /// The flag that stated a field, with its line, by the field's key.
  std::map<std::string, std::string, std::less<>> stated_by;
  std::vector<std::string> notes;    ///< what was assumed
  std::vector<std::string> unread;   ///< options that say nothing of the job (FlagTable::harmless)
  std::vector<UnknownFlag> unknown;  ///< options that no row and no list has
  /// Options that a row has read, with the flag. The flag is null where an alias was read, or where
  /// a row says what the option's absence means. Pointers are to the flags that were given.
  std::map<std::string, const GivenFlag*, std::less<>> read;
};

/// Reads flags by the rows of a table. Of an option that is given several times the last counts.
/// `known` has fields that are known beside the flags ("devices"). `batch` is the global batch
/// where no flag states it, and where none follows from micro-batches; empty: there is none. Throws
/// InputError at the flag's line where a value is not known or allowed, where two flags contradict
/// each other, and where the table refuses a flag.
FlagReading read_flags(const FlagTable& table, std::span<const GivenFlag> given, FlagFields known,
                       const std::string& file, const std::string& batch = "");

/// Checks that what was read would be written with these flags. `fields` are those of the job, the
/// strategy and the framework that came out. Throws InputError for a flag that is missing, or that
/// has another value than follows from others. Fields that are `known` from another file need no
/// flag.
void check_flags(const FlagTable& table, const FlagReading& reading, const FlagFields& fields,
                 const FlagFields& known, const std::string& file);

}  // namespace plimsoll
