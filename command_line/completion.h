// Completion: the words that may stand next on a command line, read from its commands and options.
// Shell scripts (models/presets/completions) call `planner complete` for them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

struct NextWord {
  std::string word;
  std::string meaning = {};  ///< one short line; may be empty
};

struct NextWords {
  std::vector<NextWord> words;
  bool files = false;  ///< names of files may stand there, too
};

/// Returns the values of an option or an argument by its type, which is the name in its help:
/// "JOB". `begin` is what of the value is there already. NextWords that begin otherwise are
/// dropped later.
using ValuesOfType = std::function<NextWords(std::string_view type, std::string_view begin)>;

/// Returns what may stand in place of the last of `words`, which may be empty or the beginning of a
/// word. `words` follow the name of the program. Commands and options in an empty group are not
/// offered.
NextWords complete(const CLI::App& program, std::span<const std::string> words,
                   const ValuesOfType& values);

/// Returns a line for each candidate, with a tab before its meaning. The last line is ":files"
/// where names of files may stand there, too. Scripts of shells read it.
std::string next_words_text(const NextWords& candidates);

/// Prints what is asked for and returns true, if the first word is `--complete` (then `--` and the
/// words of a command line follow) or `--man` (the manual page). `program` has no commands.
bool answer_shell(CLI::App& program, int argc, char** argv);

}  // namespace plimsoll
