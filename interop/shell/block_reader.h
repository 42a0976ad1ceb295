// A block reader follows which commands of a shell script run: by conditions, loops and functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/shell/word_reader.h"

namespace plimsoll {

/// The blocks that are open at a place in the text. Methods throw InputError as WordReader does.
class BlockReader : protected WordReader {
 protected:
  /// Whether what is read runs. What runs perhaps, or not in the script's own shell, sets variables
  /// to values that are not known.
  enum class Runs { yes, perhaps, no };

  static Runs runs_if(std::optional<bool> truth) {
    return !truth ? Runs::perhaps : *truth ? Runs::yes : Runs::no;
  }

  /// Where a block or a group begins: the assignments in front of it, and whether it is behind "|".
  struct Opened {
    std::size_t assigned = 0;
    bool piped = false;
  };

  /// A Block is what stands between "if" and "fi", or within a loop.
  struct Block {
    Runs runs = Runs::perhaps;
    bool taken = false;    ///< whether a branch in front runs
    bool unknown = false;  ///< whether a branch in front runs perhaps
    /// The word that "case" compares, and whether a list of patterns is next.
    std::optional<ShellWord> subject = {};
    bool patterns_next = false;
    Opened opened = {};

    /// Begins a branch that runs if `truth`, and no branch in front does.
    void begin_branch(std::optional<bool> truth) {
      runs = unknown ? Runs::perhaps : taken ? Runs::no : Runs::yes;
      if (runs == Runs::yes) runs = runs_if(truth);
      taken = taken || runs == Runs::yes;
      unknown = unknown || runs == Runs::perhaps;
    }
  };

  /// A Group is what stands between "{" and "}", or the "(" and ")" of a function's body.
  struct Group {
    Runs runs = Runs::yes;
    std::string function = {};  ///< whose body it is
    bool defines = false;       ///< whether the function is defined here, and not called
    int subshells = 0;          ///< brackets that are open in it, if it begins with "("
    std::size_t begin = 0;      ///< of the body: its place and its line
    std::int64_t line = 0;
    Opened opened = {};
  };

  /// A Function is the text of a body, and the line where it begins.
  struct Function {
    std::string body;
    std::int64_t line = 0;
    std::size_t assigned = 0, commands = 0;  ///< those in front of its end
    bool called = false;
  };

  using WordReader::WordReader;

  /// Follows the words that begin and end what runs under a condition, or several times.
  void follow_block(const std::string& word);
  /// Follows the brackets of groups and of functions' bodies.
  void follow_group(const std::string& word);
  /// Begins a group behind its bracket: the body of the function whose name was read, if any.
  void begin_group(int subshells);
  /// Ends the innermost group, and defines its function. `end` is the place of its last bracket.
  void end_group(std::size_t end);
  /// Whether what is read is the definition of a function: nothing in it runs yet.
  bool defines() const;
  /// "case WORD in", behind its first word.
  void begin_case();
  /// "a | b)", the patterns of a branch of "case", if none of them is "esac".
  void read_patterns();
  /// Whether what is read runs, by the conditions around it.
  Runs runs() const;
  /// Says why a command runs perhaps.
  std::string_view where_set() const;

  std::optional<bool> truth_;          ///< whether the last command ended well, if that is known
  std::vector<Block> blocks_;          ///< that are open
  Runs and_or_ = Runs::yes;            ///< of the command, by "&&" or "||" in front of it
  int subshells_ = 0;                  ///< brackets that are open
  bool piped_ = false;                 ///< whether the command is behind "|"
  std::vector<ShellWords> commands_;   ///< that run, or run perhaps
  std::vector<Group> groups_;          ///< that are open
  std::vector<std::string> assigned_;  ///< names, in the order of assignments
  std::optional<Opened> closed_;       ///< what ends in this command
  std::size_t outer_groups_ = 0;       ///< those around a text that is read again
  std::string function_;               ///< whose name "NAME()" was read, and its body comes next
  /// The bodies that each function may have: several if it is defined under conditions.
  std::map<std::string, std::vector<Function>, std::less<>> functions_;
};

}  // namespace plimsoll
