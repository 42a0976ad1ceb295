// Reads a script word by word, with the values of variables in place.
#include "interop/shell/word_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "interop/shell/shell_values.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostWordBytes = std::size_t{1} << 16;
/// The limit of all words together, with the values of variables in place.
constexpr std::size_t kMostTotalBytes = std::size_t{1} << 24;

}  // namespace

void WordReader::fail(std::int64_t line, const std::string& message) const {
  throw InputError(file_, fmt::format("line {}", line), message);
}

char WordReader::peek(std::size_t ahead) const {
  return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
}
char WordReader::take() {
  const char c = text_[at_++];
  if (c == '\n') ++line_;
  return c;
}
bool WordReader::skips(std::string_view what) {
  if (text_.substr(at_, what.size()) != what) return false;
  for (std::size_t i = 0; i < what.size(); ++i) take();
  return true;
}

/// Skips blanks, continued lines and comments; stops at the end of a line.
void WordReader::skip_blanks(bool lines) {
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

void WordReader::count(std::size_t bytes) const {
  total_ += bytes + 1;
  if (total_ > kMostTotalBytes) fail(line_, "the words of the file are longer than 16 MiB");
}

/// Counts text that is added to a word.
void WordReader::count(Building& building, std::string_view text) const {
  building.any = true;
  count(text.size());
  if (building.word.text.size() + text.size() > kMostWordBytes)
    fail(line_, "a word is longer than 64 KiB");
}
void WordReader::add(Building& building, std::string_view text) const {
  count(building, text);
  building.word.add_known(text);
}
void WordReader::add_unknown(Building& building, std::string_view text,
                             const std::string& why) const {
  count(building, text);
  building.word.add_unknown(text, why);
}
void WordReader::add_word(Building& building, const ShellWord& word) const {
  count(building, word.text);
  building.word.add(word);
}

void WordReader::end_word(Building& building) const {
  if (building.any) building.done.push_back(building.word);
  building.word = {"", line_};
  building.any = false;
}

/// Adds the value of a variable: as one piece of text in quotes, else split at blanks.
void WordReader::add_value(Building& building, const ShellWords& value, bool quoted,
                           bool all) const {
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
void WordReader::add_split(Building& building, const ShellWord& word) const {
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
std::string_view WordReader::inside_brackets(char open, char close, std::int64_t line) {
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

void WordReader::read_variable(Building& building, const std::string& name, bool quoted,
                               bool all) const {
  const auto known = variables_.find(name);
  if (known != variables_.end()) {
    add_value(building, known->second, quoted, all);
  } else {
    add_unknown(building, "$" + name, fmt::format("${} is not set in this file", name));
  }
}

/// An empty text without quotes makes no word.
void WordReader::add_default(Building& building, const std::string& text, bool quoted) const {
  if (quoted || !text.empty()) add(building, text);
}

/// "${...}", behind the bracket.
void WordReader::read_braces(Building& building, bool quoted, std::int64_t line) {
  const std::string_view all = inside_brackets('{', '}', line);
  std::size_t end = 0;
  while (end < all.size() && is_name(all[end])) ++end;
  const std::string name(all.substr(0, end));
  std::string_view rest = all.substr(end);
  const bool array = rest == "[@]" || rest == "[*]";
  if (array) rest = {};
  bool otherwise = false;  // a default follows
  std::string_view inner;
  bool in_quotes = quoted;
  for (const std::string_view sign : {":-", "-", ":=", "="}) {
    if (otherwise || !rest.starts_with(sign)) continue;
    otherwise = true;
    inner = rest.substr(sign.size());
  }
  for (const char quote : {'"', '\''}) {
    if (inner.size() > 1 && inner.front() == quote && inner.back() == quote)
      inner = inner.substr(1, inner.size() - 2), in_quotes = true;
  }
  const std::string word(inner);
  const bool assigns = rest.starts_with(":=") || rest.starts_with("=");
  const bool plain = word.find_first_of("$`\"'\\ ") == std::string::npos;
  // ":-" is of an empty variable, too.
  const bool without =
      !variables_.contains(name) || (otherwise && rest[0] == ':' && is_empty(name));
  if (otherwise && plain && without && !name.empty()) {
    if (assigns) defaults_.emplace_back(name, ShellWord{word, line_});
    return add_default(building, word, in_quotes);
  }
  if (!name.empty() && (rest.empty() || (otherwise && plain))) {
    read_variable(building, name, quoted, array);
  } else {
    add_unknown(building, fmt::format("${{{}}}", all),
                "a substitution of a variable is not evaluated; write the value in its place");
  }
}

/// "$...", at the sign.
void WordReader::read_dollar(Building& building, bool quoted) {
  const std::int64_t line = line_;
  take();
  if (skips("((")) {
    const auto value = arithmetic(inside_brackets('(', ')', line));
    if (peek() == ')') take();
    if (value) {
      add(building, fmt::format("{}", *value));
    } else {
      add_unknown(building, "$((...))", "its value is not known from this file");
    }
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
    read_variable(building, name, quoted, false);
  } else if (peek() == '?' || peek() == '$' || peek() == '#' || peek() == '!') {
    take();
    add_unknown(building, "$", "a value of a running shell is not known");
  } else {
    add(building, "$");
  }
}

void WordReader::read_double_quotes(Building& building) {
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
    } else if (c == '\\' && std::string_view("$`\"\\\n").find(peek(1)) != std::string_view::npos) {
      take();
      const char escaped = at_ < text_.size() ? take() : '\\';
      if (escaped != '\n') add(building, {&escaped, 1});
    } else {
      take();
      add(building, {&c, 1});
    }
  }
}

void WordReader::read_backticks(Building& building) {
  const std::int64_t line = line_;
  take();
  while (at_ < text_.size() && peek() != '`') take();
  if (at_ >= text_.size()) fail(line, "a ` that begins here does not end");
  take();
  add_unknown(building, "`...`", "a command substitution is not evaluated");
}

/// Reads one word, which may become several or none.
ShellWords WordReader::read_word() {
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

bool WordReader::is_empty(const std::string& name) const {
  const auto known = variables_.find(name);
  return known != variables_.end() && std::ranges::all_of(known->second, [](const ShellWord& word) {
           return word.text.empty();
         });
}

std::optional<std::int64_t> WordReader::arithmetic(std::string_view text) const {
  return arithmetic_value(text, [&](std::string_view name) -> std::optional<std::string> {
    const auto known = variables_.find(name);
    if (known == variables_.end() || known->second.size() != 1 || !known->second[0].unknown.empty())
      return std::nullopt;
    return known->second[0].text;
  });
}

std::string WordReader::assigned_name() const {
  std::size_t end = at_;
  while (end < text_.size() && is_name(text_[end])) ++end;
  if (end == at_ || (text_[at_] >= '0' && text_[at_] <= '9')) return "";
  const bool joins = text_.substr(end).starts_with("+=");
  if (!joins && !text_.substr(end).starts_with("=")) return "";
  return std::string(text_.substr(at_, end - at_));
}

void WordReader::skip_here_document() {
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

}  // namespace plimsoll
