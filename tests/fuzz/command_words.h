// Command lines as an entry point of untrusted text.
#pragma once

#include <string_view>

namespace plimsoll {

/// Reads a text as a command line of `planner`, whose words end at ends of lines or at NUL. The
/// words are parsed and completed as the program does it, and the values of flags are read as the
/// commands read them: number lists, prices, tokens, times, held choices, answers of `init`.
/// Nothing is run, and no file is read or written. Throws UsageError, InputError or InfeasibleError
/// for what is refused.
void read_command_line(std::string_view text);

}  // namespace plimsoll
