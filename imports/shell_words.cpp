// Reads shell scripts word by word.
#include "imports/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "imports/shell_keywords.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostWordBytes = std::size_t{1} << 16;
/// The limit of all words together, with the values of variables in place.
constexpr std::size_t kMostTotalBytes = std::size_t{1} << 24;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

class ShellReader {
 public:
  ShellReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  ShellScript read() {
    while (at_ < text_.size()) read_command();
    return std::move(script_);
  }

 private:
  /// The word that is being read: an unquoted variable may make it several.
  struct Building {
    ShellWords done;
    ShellWord word;
    bool any = false;  ///< whether the word is there, even if it is empty
  };

  [[noreturn]] void fail(std::int64_t line, const std::string& message) const {
    throw InputError(file_, fmt::format("line {}", line), message);
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char take() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  bool skips(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    for (std::size_t i = 0; i < what.size(); ++i) take();
    return true;
  }

  /// Skips blanks, continued lines and comments; stops at the end of a line.
  void skip_blanks(bool lines) {
    while (at_ < text_.size()) {
      if (is_blank(peek()) || (lines && peek() == '\n')) {
        take();
      } else if (skips("\\\n") || skips("\\\r\n")) {
        continue;
      } else if (peek() == '#') {
        while (at_ < text_.size() && peek() != '\n') take();
      } else {
        return;
      }
    }
  }

  /// Counts text that is added to a word.
  void count(Building& building, std::string_view text) const {
    building.any = true;
    total_ += text.size() + 1;
    if (total_ > kMostTotalBytes) fail(line_, "the words of the file are longer than 16 MiB");
    if (building.word.text.size() + text.size() > kMostWordBytes)
      fail(line_, "a word is longer than 64 KiB");
  }
  void add(Building& building, std::string_view text) const {
    count(building, text);
    building.word.add_known(text);
  }
  void add_unknown(Building& building, std::string_view text, const std::string& why) const {
    count(building, text);
    building.word.add_unknown(text, why);
  }
  void add_word(Building& building, const ShellWord& word) const {
    count(building, word.text);
    building.word.add(word);
  }

  void end_word(Building& building) const {
    if (building.any) building.done.push_back(building.word);
    building.word = {"", line_};
    building.any = false;
  }

  /// Adds the value of a variable: as one piece of text in quotes, else split at blanks.
  void add_value(Building& building, const ShellWords& value, bool quoted, bool all) const {
    std::size_t bytes = 0;
    for (const ShellWord& word : value) bytes += word.text.size() + 1;
    for (const ShellWord& word : building.done) bytes += word.text.size() + 1;
    if (bytes > kMostWordBytes) fail(line_, "the values of variables are longer than 64 KiB");
    for (std::size_t i = 0; i < value.size() && (all || i == 0); ++i) {
      const ShellWord& word = value[i];
      if (i > 0) end_word(building);
      if (all) building.word.line = word.line;
      if (quoted || all) {
        add_word(building, word);
      } else {
        add_split(building, word);
      }
    }
  }

  /// Blanks at either end of the value end the word, as those within it do.
  void add_split(Building& building, const ShellWord& word) const {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
    if (word.text.empty()) return;
    const ShellWords pieces = split_at_blanks(word);
    if (blank(word.text.front())) end_word(building);
    for (const ShellWord& piece : pieces) {
      if (&piece != &pieces.front()) end_word(building);
      if (!building.any) building.word.line = word.line;
      add_word(building, piece);
    }
    if (blank(word.text.back())) {
      end_word(building);
      building.word.line = word.line;
    }
  }

  /// Returns the text up to the bracket that closes the one just read.
  std::string_view inside_brackets(char open, char close, std::int64_t line) {
    const std::size_t begin = at_;
    for (int depth = 1; at_ < text_.size();) {
      const char c = take();
      if (c == '\\' && at_ < text_.size()) {
        take();
      } else if (c == '\'' && open == '(') {
        while (at_ < text_.size() && take() != '\'') {
        }
      } else if (c == open) {
        ++depth;
      } else if (c == close && --depth == 0) {
        return text_.substr(begin, at_ - 1 - begin);
      }
    }
    fail(line, fmt::format("a {} that begins here does not end", open));
  }

  void read_variable(Building& building, const std::string& name, bool quoted, bool all,
                     const std::string* otherwise) const {
    const auto known = script_.variables.find(name);
    if (known != script_.variables.end()) {
      add_value(building, known->second, quoted, all);
    } else if (otherwise != nullptr) {
      add(building, *otherwise);
    } else {
      add_unknown(building, "$" + name, fmt::format("${} is not set in this file", name));
    }
  }

  /// "${...}", behind the bracket.
  void read_braces(Building& building, bool quoted, std::int64_t line) {
    const std::string_view all = inside_brackets('{', '}', line);
    std::size_t end = 0;
    while (end < all.size() && is_name(all[end])) ++end;
    const std::string name(all.substr(0, end));
    std::string_view rest = all.substr(end);
    const bool array = rest == "[@]" || rest == "[*]";
    if (array) rest = {};
    const bool otherwise = rest.starts_with(":-") || rest.starts_with("-");
    std::string_view inner = otherwise ? rest.substr(rest.find('-') + 1) : "";
    for (const char quote : {'"', '\''}) {
      if (inner.size() > 1 && inner.front() == quote && inner.back() == quote)
        inner = inner.substr(1, inner.size() - 2);
    }
    const std::string word(inner);
    const bool plain = word.find_first_of("$`\"'\\ ") == std::string::npos;
    if (!name.empty() && (rest.empty() || (otherwise && plain))) {
      read_variable(building, name, quoted, array, otherwise ? &word : nullptr);
    } else {
      add_unknown(building, fmt::format("${{{}}}", all),
                  "a substitution of a variable is not evaluated");
    }
  }

  /// "$...", at the sign.
  void read_dollar(Building& building, bool quoted) {
    const std::int64_t line = line_;
    take();
    if (skips("((")) {
      inside_brackets('(', ')', line);
      if (peek() == ')') take();
      add_unknown(building, "$((...))", "arithmetic is not evaluated");
    } else if (skips("(")) {
      inside_brackets('(', ')', line);
      add_unknown(building, "$(...)", "a command substitution is not evaluated");
    } else if (skips("{")) {
      read_braces(building, quoted, line);
    } else if (peek() == '@' || peek() == '*') {
      take();  // further arguments, of which a file says nothing
    } else if (is_name(peek())) {
      std::string name;
      const bool digit = peek() >= '0' && peek() <= '9';
      while (is_name(peek()) && !(digit && name.size() == 1)) name += take();
      read_variable(building, name, quoted, false, nullptr);
    } else if (peek() == '?' || peek() == '$' || peek() == '#' || peek() == '!') {
      take();
      add_unknown(building, "$", "a value of a running shell is not known");
    } else {
      add(building, "$");
    }
  }

  void read_double_quotes(Building& building) {
    const std::int64_t line = line_;
    take();
    if (peek() != '$') building.any = true;
    while (true) {
      if (at_ >= text_.size()) fail(line, "a \" that begins here does not end");
      const char c = peek();
      if (c == '"') {
        take();
        return;
      }
      if (c == '$') {
        read_dollar(building, true);
      } else if (c == '`') {
        read_backticks(building);
      } else if (c == '\\' &&
                 std::string_view("$`\"\\\n").find(peek(1)) != std::string_view::npos) {
        take();
        const char escaped = at_ < text_.size() ? take() : '\\';
        if (escaped != '\n') add(building, {&escaped, 1});
      } else {
        take();
        add(building, {&c, 1});
      }
    }
  }

  void read_backticks(Building& building) {
    const std::int64_t line = line_;
    take();
    while (at_ < text_.size() && peek() != '`') take();
    if (at_ >= text_.size()) fail(line, "a ` that begins here does not end");
    take();
    add_unknown(building, "`...`", "a command substitution is not evaluated");
  }

  /// Reads one word, which may become several or none.
  ShellWords read_word() {
    Building building;
    building.word.line = line_;
    while (at_ < text_.size()) {
      const char c = peek();
      if (is_blank(c) || c == '\n' || std::string_view(";|&()<>").find(c) != std::string_view::npos)
        break;
      if (c == '\'') {
        const std::int64_t line = line_;
        take();
        building.any = true;
        while (at_ < text_.size() && peek() != '\'') {
          const char inner = take();
          add(building, {&inner, 1});
        }
        if (at_ >= text_.size()) fail(line, "a ' that begins here does not end");
        take();
      } else if (c == '"') {
        read_double_quotes(building);
      } else if (c == '$') {
        read_dollar(building, false);
      } else if (c == '`') {
        read_backticks(building);
      } else if (c == '\\') {
        take();
        if (peek() == '\r' && peek(1) == '\n') take();
        if (at_ >= text_.size()) break;
        const char escaped = take();
        if (escaped != '\n') add(building, {&escaped, 1});
      } else {
        take();
        add(building, {&c, 1});
      }
    }
    end_word(building);
    return std::move(building.done);
  }

  /// Returns the name where "NAME=" or "NAME+=" is next.
  std::string assigned_name() const {
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    if (end == at_ || (text_[at_] >= '0' && text_[at_] <= '9')) return "";
    const bool joins = text_.substr(end).starts_with("+=");
    if (!joins && !text_.substr(end).starts_with("=")) return "";
    return std::string(text_.substr(at_, end - at_));
  }

  void read_assignment(const std::string& name) {
    const std::int64_t line = line_;
    for (std::size_t i = 0; i < name.size(); ++i) take();
    const bool joins = skips("+");
    skips("=");
    ShellWords value;
    const bool array = skips("(");
    if (array) {
      while (true) {
        skip_blanks(true);
        if (at_ >= text_.size()) fail(line, "a ( that begins here does not end");
        if (skips(")")) break;
        ShellWords words = read_word();
        if (words.empty() && at_ < text_.size() && !is_blank(peek()) && peek() != '\n' &&
            peek() != ')')
          take();  // a sign that no word has
        value.insert(value.end(), words.begin(), words.end());
      }
    } else {
      // A value is one word, whatever variables are in it.
      ShellWord one{"", line};
      for (const ShellWord& word : read_word()) {
        if (!one.text.empty()) one.add_known(" ");
        one.add(word);
      }
      value.push_back(one);
    }
    if (runs_perhaps()) {
      const std::string why = fmt::format("${} is set under a condition (line {})", name, line);
      ShellWord perhaps{"", line};
      perhaps.add_unknown("$" + name, why);
      value = {perhaps};
    }
    assign(name, std::move(value), joins, array);
  }

  void assign(const std::string& name, ShellWords value, bool joins, bool array) {
    const auto known = script_.variables.find(name);
    if (known == script_.variables.end()) {
      script_.names.push_back(name);
      script_.variables[name] = std::move(value);
    } else if (!joins) {
      known->second = std::move(value);
    } else if (array || known->second.size() != 1 || value.size() != 1) {
      known->second.insert(known->second.end(), value.begin(), value.end());
    } else {
      known->second[0].add(value[0]);
    }
    std::size_t bytes = 0;
    for (const ShellWord& word : script_.variables[name]) bytes += word.text.size() + 1;
    if (bytes > kMostWordBytes)
      fail(line_, fmt::format("the value of ${} is longer than 64 KiB", name));
  }

  /// Follows the words that begin and end what runs under a condition, or several times.
  void count_block(const std::string& word) {
    if (begins_block(word)) ++depth_;
    if (ends_block(word) && depth_ > 0) --depth_;
  }

  /// Whether what is read may not run, or runs where its variables are not the script's own.
  bool runs_perhaps() const {
    return depth_ > 0 || subshells_ > 0 || behind_and_or_ ||
           std::ranges::find(groups_, true) != groups_.end();
  }

  /// Follows the brackets of groups and of functions' bodies.
  void count_group(const std::string& word) {
    if (word == "{") {
      groups_.push_back(behind_and_or_ || function_);
      function_ = false;
    } else if (word == "}" && !groups_.empty()) {
      groups_.pop_back();
    }
  }

  /// Takes what separates two commands.
  void end_command() {
    const bool and_or = skips("&&") || skips("||");
    behind_and_or_ = and_or;
    if (and_or) return;
    const char c = take();
    if (c == '(') {
      ++subshells_;
      function_ = peek() == ')';
    } else if (c == ')' && subshells_ > 0) {
      --subshells_;
    }
  }

  void skip_here_document() {
    if (peek() == '-') take();
    skip_blanks(false);
    std::string end;
    while (at_ < text_.size() && !is_blank(peek()) && peek() != '\n') {
      const char c = take();
      if (c != '\'' && c != '"' && c != '\\') end += c;
    }
    while (at_ < text_.size() && peek() != '\n') take();
    while (at_ < text_.size()) {
      take();
      const std::size_t stop = std::min(text_.find('\n', at_), text_.size());
      std::string_view found = text_.substr(at_, stop - at_);
      while (!found.empty() && is_blank(found.front())) found.remove_prefix(1);
      while (!found.empty() && is_blank(found.back())) found.remove_suffix(1);
      at_ = stop;
      if (found == end) return;
    }
  }

  /// Reads up to the end of a command. A file is passed over, and so is what ">" and "<" name.
  void read_command() {
    ShellWords command;
    std::map<std::string, ShellWords>
        before;            // values of variables that the command may have alone
    bool options = false;  // of a declaration may follow
    while (true) {
      skip_blanks(false);
      if (at_ >= text_.size()) break;
      const char c = peek();
      if (skips("<<")) {
        skip_here_document();
        continue;
      }
      if (c == '>' || c == '<') {
        take();
        while (peek() == '>' || peek() == '&') take();
        skip_blanks(false);
        read_word();
        continue;
      }
      if (c == '&' && peek(1) == '>') {
        take();
        continue;
      }
      if (std::string_view("\n;|&()").find(c) != std::string_view::npos) {
        end_command();
        break;
      }
      const bool first = command.empty();
      if (const std::string name = first ? assigned_name() : ""; !name.empty()) {
        const auto known = script_.variables.find(name);
        if (known != script_.variables.end()) before.emplace(name, known->second);
        read_assignment(name);
        continue;
      }
      ShellWords words = read_word();
      const bool redirects = peek() == '>' || peek() == '<';
      if (redirects && words.size() == 1 && !words[0].text.empty() &&
          words[0].text.find_first_not_of("0123456789") == std::string::npos)
        continue;  // "2" of "2>&1"
      if (first && words.size() == 1) {
        const std::string& word = words[0].text;
        count_block(word);
        count_group(word);
        if (options && word.starts_with('-')) continue;
        options = declares(word);
        if (goes_on(word)) continue;
      }
      command.insert(command.end(), words.begin(), words.end());
    }
    if (!command.empty()) {
      for (auto& [name, value] : before) script_.variables[name] = std::move(value);
    }
    if (command.size() > 1 && (command[0].text == "for" || command[0].text == "select")) {
      const std::string& name = command[1].text;
      ShellWord loop{"", line_};
      loop.add_unknown("$" + name, fmt::format("${} is set by a loop", name));
      assign(name, {loop}, false, false);
    }
    if (!command.empty()) script_.commands.push_back(std::move(command));
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  int depth_ = 0;                  ///< of blocks that run under a condition
  int subshells_ = 0;              ///< brackets that are open
  bool behind_and_or_ = false;     ///< whether "&&" or "||" stands before the command
  bool function_ = false;          ///< whether "NAME()" was read, and its body comes next
  std::vector<bool> groups_;       ///< open "{": whether what is in them may not run
  mutable std::size_t total_ = 0;  ///< bytes of all words
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& file) {
  return ShellReader(text, file).read();
}

}  // namespace plimsoll
