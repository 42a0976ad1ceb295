// A word reader reads the words of a shell script, with the values of variables in place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/shell/shell_word.h"

namespace plimsoll {

inline bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// The place in the text, and how words are read there. Methods throw InputError with the line
/// where a quote or a bracket does not end, and where words get too long.
class WordReader {
 protected:
  /// `text` and `file` have to outlive the reader.
  WordReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  [[noreturn]] void fail(std::int64_t line, const std::string& message) const;
  char peek(std::size_t ahead = 0) const;
  char take();
  bool skips(std::string_view what);
  /// Skips blanks, continued lines and comments; stops at the end of a line unless `lines` is set.
  void skip_blanks(bool lines);
  /// Returns the text up to the bracket that closes the one just read.
  std::string_view inside_brackets(char open, char close, std::int64_t line);
  /// Counts bytes of words, or of a text that is read again. Fails above 16 MiB.
  void count(std::size_t bytes) const;
  /// Reads one word, which may become several or none.
  ShellWords read_word();
  /// Returns the name where "NAME=" or "NAME+=" is next.
  std::string assigned_name() const;
  void skip_here_document();  ///< behind its "<<"
  /// Returns the value of an expression, where the variables in it are known.
  std::optional<std::int64_t> arithmetic(std::string_view text) const;

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  std::map<std::string, ShellWords, std::less<>> variables_;
  /// Values that "${NAME:=WORD}" assigns, of the words since this was empty.
  std::vector<std::pair<std::string, ShellWord>> defaults_;

 private:
  /// The word that is being read: an unquoted variable may make it several.
  struct Building {
    ShellWords done;
    ShellWord word;
    bool any = false;  ///< whether the word is there, even if it is empty
  };

  void count(Building& building, std::string_view text) const;
  void add(Building& building, std::string_view text) const;
  void add_unknown(Building& building, std::string_view text, const std::string& why) const;
  void add_word(Building& building, const ShellWord& word) const;
  void end_word(Building& building) const;
  void add_value(Building& building, const ShellWords& value, bool quoted, bool all) const;
  void add_split(Building& building, const ShellWord& word) const;
  void read_variable(Building& building, const std::string& name, bool quoted, bool all) const;
  void add_default(Building& building, const std::string& text, bool quoted) const;
  bool is_empty(const std::string& name) const;
  void read_braces(Building& building, bool quoted, std::int64_t line);
  void read_dollar(Building& building, bool quoted);
  void read_double_quotes(Building& building);
  void read_backticks(Building& building);

  mutable std::size_t total_ = 0;  ///< bytes of all words
};

}  // namespace plimsoll
