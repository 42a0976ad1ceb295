// Launchers state by options in front of the program how many ranks they start. The options are
// those of models/presets/readers/launcher-options.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "interop/flags/flag_reader.h"
#include "interop/flags/flag_table.h"
#include "interop/shell/shell_words.h"

namespace plimsoll {

/// Returns whether a word is the name or the path of a launcher that has short options.
bool is_launcher(const ShellWord& word);
/// Returns the long option that a launcher's word stands for: "-N", "-N4" and "-np" of srun and
/// mpirun. A count that is attached is its value.
std::optional<GivenFlag> short_option(const std::string& launcher, const ShellWord& word);

/// Returns a number above 0 that is all of a text.
std::optional<std::int64_t> count_in(const std::string& text);
/// Returns the number that the script has for a variable, if it is known.
std::optional<std::int64_t> number_of(const ShellScript& script, std::string_view name);

/// Returns the ranks that a launcher starts by its options and the script's lines "#SBATCH": its
/// tasks, or its GPUs. The result is empty if neither is stated, or if both are and differ. Notes
/// say what is assumed.
std::optional<std::int64_t> launched_ranks(const ShellScript& script,
                                           const std::vector<GivenFlag>& flags,
                                           std::vector<std::string>& notes);

/// Returns whether an option is a launcher's own.
bool is_of_launcher(const std::string& option);
/// Takes the launcher's own options out of the flags, but those that the table has.
void take_launcher_options(const FlagTable& table, std::vector<GivenFlag>& flags,
                           std::vector<std::string>& unread);

}  // namespace plimsoll
