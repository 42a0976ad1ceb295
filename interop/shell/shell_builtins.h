// Shell builtins are the shell's own commands that set variables.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "interop/shell/shell_word.h"

namespace plimsoll {

/// Returns the place of the program's name in a command: behind "if", "!" and assignments.
std::size_t program_at(const ShellWords& command);

bool is_variable_name(const std::string& text);

/// Returns the variables that a program sets to values of a running shell: those of read, mapfile,
/// getopts and printf -v.
std::vector<std::string> set_by_builtin(const std::string& program, const ShellWords& arguments);

}  // namespace plimsoll
