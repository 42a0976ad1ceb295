// Shell words are the words of a shell script's commands, read without running anything.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "interop/shell/shell_word.h"

namespace plimsoll {

struct ShellScript {
  /// In their order, with variables in place. Those of a function stand where it is called, once
  /// for all calls with the same words; those of a function that is not called, where it is
  /// defined.
  std::vector<ShellWords> commands;
  /// The last value of each variable that is assigned: one word, or the words of an array.
  std::map<std::string, ShellWords, std::less<>> variables;
  std::vector<std::string> names;  ///< of the variables, in the order of their first assignment
  std::vector<std::string> notes;  ///< what may set variables and is not read, with its line
};

/// Splits a script into words. It knows comments, quotes, continued lines, here-documents, arrays,
/// and assignments of plain values, which stand for $NAME, ${NAME}, ${NAME[@]} and ${NAME:-WORD}.
/// A text that only a shell could tell (a substitution, arithmetic, a variable of the environment
/// or one that is set under a condition) is unknown. Throws InputError with the line where a quote
/// or a bracket does not end, and where a word or a variable
/// gets longer than 64 KiB, or all words together longer than 16 MiB.
ShellScript read_shell(std::string_view text, const std::string& file);

}  // namespace plimsoll
