// A block reader follows which commands of a shell script run: by conditions, loops and functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "imports/shell/word_reader.h"

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

  /// A Group is what stands between "{" and "}".
  struct Group {
    Runs runs = Runs::yes;
    std::string function = {};  ///< whose body it is
    std::size_t begin = 0;      ///< of the body: its place and its line
    std::int64_t line = 0;
    Opened opened = {};
  };

  /// A Function is the text of a body, and the line where it begins.
  struct Function {
    std::string body;
    std::int64_t line = 0;
  };

  using WordReader::WordReader;

  /// Follows the words that begin and end what runs under a condition, or several times.
  void follow_block(const std::string& word);
  /// Follows the brackets of groups and of functions' bodies.
  void follow_group(const std::string& word);
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
  std::vector<Group> groups_;          ///< that are open
  std::vector<std::string> assigned_;  ///< names, in the order of assignments
  std::optional<Opened> closed_;       ///< what ends in this command
  std::size_t outer_groups_ = 0;       ///< those around a text that is read again
  std::string function_;               ///< whose name "NAME()" was read, and its body comes next
  std::map<std::string, Function, std::less<>> functions_;
};

}  // namespace plimsoll
