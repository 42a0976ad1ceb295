// Reads shell scripts word by word.
#include "imports/shell/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "imports/shell/shell_keywords.h"
#include "imports/shell/shell_values.h"
#include "imports/shell/word_reader.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostValueBytes = std::size_t{1} << 16;

/// Whether what is read runs. What runs perhaps, or not in the script's own shell, sets variables
/// to values that are not known.
enum class Runs { yes, perhaps, no };

Runs runs_if(std::optional<bool> truth) {
  return !truth ? Runs::perhaps : *truth ? Runs::yes : Runs::no;
}

/// A Block is what stands between "if" and "fi", or within a loop.
struct Block {
  Runs runs = Runs::perhaps;
  bool taken = false;    ///< whether a branch in front runs
  bool unknown = false;  ///< whether a branch in front runs perhaps
  /// The word that "case" compares, and whether a list of patterns is next.
  std::optional<ShellWord> subject = {};
  bool patterns_next = false;

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
  bool function = false;  ///< it is the body of one
};

/// Returns whether a text has the pattern of a "case"; nothing where that is not known.
std::optional<bool> has_pattern(const ShellWord& subject, const ShellWord& pattern) {
  if (pattern.text == "*") return true;
  if (!subject.unknown.empty() || !pattern.unknown.empty()) return std::nullopt;
  if (pattern.text.find_first_of("*?[") != std::string::npos) return std::nullopt;
  return subject.text == pattern.text;
}

class ShellReader : private WordReader {
 public:
  ShellReader(std::string_view text, const std::string& file) : WordReader(text, file) {
    for (const auto& [name, value] : slurm_variables(text)) variables_[name] = {{value, 0}};
  }

  ShellScript read() {
    while (at_ < text_.size()) read_command();
    script_.variables = std::move(variables_);
    return std::move(script_);
  }

 private:
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
    if (runs() == Runs::no) return;
    const bool known =
        std::ranges::all_of(value, [](const ShellWord& word) { return word.unknown.empty(); });
    truth_ = known ? std::optional(true) : std::nullopt;
    if (runs() == Runs::perhaps || subshells_ > 0) {
      const std::string why = fmt::format("${} is set {} (line {})", name, where_set(), line);
      value = {unknown_word("$" + name, why)};
    }
    assign(name, std::move(value), joins, array);
  }

  ShellWord unknown_word(const std::string& spelling, const std::string& why) const {
    ShellWord word{"", line_};
    word.add_unknown(spelling, why);
    return word;
  }

  void assign(const std::string& name, ShellWords value, bool joins, bool array) {
    const auto known = variables_.find(name);
    if (known == variables_.end()) {
      script_.names.push_back(name);
      variables_[name] = std::move(value);
    } else if (!joins) {
      known->second = std::move(value);
    } else if (array || known->second.size() != 1 || value.size() != 1) {
      known->second.insert(known->second.end(), value.begin(), value.end());
    } else {
      known->second[0].add(value[0]);
    }
    std::size_t bytes = 0;
    for (const ShellWord& word : variables_[name]) bytes += word.text.size() + 1;
    if (bytes > kMostValueBytes)
      fail(line_, fmt::format("the value of ${} is longer than 64 KiB", name));
  }

  /// Says why a command runs perhaps.
  std::string_view where_set() const {
    const bool function = std::ranges::any_of(groups_, &Group::function);
    return function ? "in a function" : "under a condition";
  }

  /// Follows the words that begin and end what runs under a condition, or several times.
  void follow_block(const std::string& word) {
    if (begins_block(word)) blocks_.push_back({word == "if" ? Runs::yes : Runs::perhaps});
    if (blocks_.empty()) return;
    Block& block = blocks_.back();
    if (word == "then") {
      block.begin_branch(truth_);
    } else if (word == "elif" || word == "else") {
      block.runs = block.unknown ? Runs::perhaps : block.taken ? Runs::no : Runs::yes;
    } else if (ends_block(word)) {
      blocks_.pop_back();
      truth_.reset();
    }
  }

  /// "case WORD in", behind its first word.
  void begin_case() {
    skip_blanks(false);
    ShellWord subject{"", line_};
    for (const ShellWord& word : read_word()) subject.add(word);
    skip_blanks(true);
    read_word();
    blocks_.back() = {.runs = Runs::yes, .subject = subject, .patterns_next = true};
  }

  /// "a | b)", the patterns of a branch of "case", if none of them is "esac".
  void read_patterns() {
    Block& block = blocks_.back();
    block.patterns_next = false;
    skip_blanks(true);
    if (text_.substr(at_).starts_with("esac") && !is_name(peek(4))) return;
    skips("(");
    std::optional<bool> truth = false;
    while (at_ < text_.size()) {
      skip_blanks(true);
      ShellWord pattern{"", line_};
      for (const ShellWord& word : read_word()) pattern.add(word);
      const auto one = has_pattern(*block.subject, pattern);
      if (one == true || (truth && *truth)) {
        truth = true;
      } else if (!one) {
        truth = std::nullopt;
      }
      skip_blanks(false);
      if (skips(")")) break;
      if (at_ < text_.size()) take();  // "|", or a sign that no pattern has
    }
    block.begin_branch(truth);
  }

  /// Whether what is read runs, by the conditions around it.
  Runs runs() const {
    Runs all = and_or_;
    for (const Block& block : blocks_) all = std::max(all, block.runs);
    for (const Group& group : groups_) all = std::max(all, group.runs);
    return all;
  }

  /// Follows the brackets of groups and of functions' bodies.
  void follow_group(const std::string& word) {
    if (word == "{") {
      groups_.push_back({function_ ? Runs::perhaps : and_or_, function_});
      function_ = false;
    } else if (word == "}" && !groups_.empty()) {
      groups_.pop_back();
    }
  }

  /// Takes what separates two commands.
  void end_command() {
    const bool both = skips("&&");
    if (both || skips("||")) {
      and_or_ = runs_if(truth_ ? std::optional(*truth_ == both) : std::nullopt);
      skip_blanks(true);
      return;
    }
    and_or_ = Runs::yes;
    const char c = take();
    const bool in_case = !blocks_.empty() && blocks_.back().subject;
    if (c == ';' && in_case && (peek() == ';' || peek() == '&')) {
      // "&" goes on with the next branch, whatever its patterns.
      blocks_.back().unknown = blocks_.back().unknown || peek() == '&' || peek(1) == '&';
      while (peek() == ';' || peek() == '&') take();
      blocks_.back().patterns_next = true;
    } else if (c == '(') {
      ++subshells_;
      function_ = peek() == ')';
    } else if (c == ')' && subshells_ > 0) {
      --subshells_;
    }
  }

  /// Sets the variables of an expression such as "N = 4 * 8": to its value, if it is known.
  void set_by(const std::string& text) {
    std::vector<std::string> names = set_by_arithmetic(text);
    if (names.empty() || runs() == Runs::no) return;
    const std::size_t behind = text.find(names[0]) + names[0].size();
    const std::size_t equals = text.find_first_not_of(" \t", behind);
    std::optional<std::int64_t> value;
    if (equals != text.npos && text[equals] == '=') {
      const std::string_view right = std::string_view(text).substr(equals + 1);
      if (set_by_arithmetic(right).empty()) names.resize(1);  // the others are only read
      value = arithmetic(right);
    }
    const bool known = value && runs() == Runs::yes && subshells_ == 0;
    for (const std::string& name : names) {
      const std::string why = fmt::format("${} is set by arithmetic (line {})", name, line_);
      assign(name,
             {known ? ShellWord{std::to_string(*value), line_} : unknown_word("$" + name, why)},
             false, false);
    }
  }

  /// "((...))", behind its first brackets: a command whose truth is a value.
  ShellWord read_arithmetic() {
    const std::string_view text = inside_brackets('(', ')', line_);
    if (peek() == ')') take();
    const bool sets = !set_by_arithmetic(text).empty();
    const auto value = sets ? std::nullopt : arithmetic(text);
    set_by(std::string(text));
    if (!value) return unknown_word("((...))", "its value is not known from this file");
    return {*value != 0 ? "true" : "false", line_};
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
    if (!blocks_.empty() && blocks_.back().patterns_next) read_patterns();
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
        if (c != '(' || peek(1) != '(' || !takes_arithmetic(command)) break;
        take();
        take();
        command.push_back(read_arithmetic());
        continue;
      }
      const bool first = command.empty();
      if (const std::string name = first ? assigned_name() : ""; !name.empty()) {
        const auto known = variables_.find(name);
        if (known != variables_.end()) before.emplace(name, known->second);
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
        follow_block(word);
        follow_group(word);
        if (word == "case") {
          begin_case();
          return;
        }
        if (word == "function") {  // the word behind it is a name
          skip_blanks(false);
          read_word();
          function_ = true;
          continue;
        }
        if (options && word.starts_with('-')) continue;
        options = declares(word);
        if (goes_on(word)) continue;
      }
      command.insert(command.end(), words.begin(), words.end());
    }
    if (!command.empty()) {
      for (auto& [name, value] : before) variables_[name] = std::move(value);
      end_words(std::move(command));
    }
    if (at_ < text_.size()) end_command();
  }

  /// Whether "((" begins an expression behind these words of a command.
  static bool takes_arithmetic(const ShellWords& command) {
    return command.empty() ||
           (command.size() == 1 && (command[0].text == "if" || command[0].text == "elif" ||
                                    command[0].text == "while" || command[0].text == "until"));
  }

  /// Keeps a command that runs, or runs perhaps.
  void end_words(ShellWords command) {
    const Runs run = runs();
    if (run == Runs::no) return;
    truth_ = run == Runs::yes ? truth_of(command) : std::nullopt;
    for (std::size_t i = 1; command[0].text == "let" && i < command.size(); ++i)
      set_by(command[i].text);
    if (command.size() > 1 && (command[0].text == "for" || command[0].text == "select")) {
      const std::string& name = command[1].text;
      assign(name, {unknown_word("$" + name, fmt::format("${} is set by a loop", name))}, false,
             false);
    }
    script_.commands.push_back(std::move(command));
  }

  std::optional<bool> truth_;  ///< whether the last command ended well, if that is known
  std::vector<Block> blocks_;  ///< that are open
  Runs and_or_ = Runs::yes;    ///< of the command, by "&&" or "||" in front of it
  int subshells_ = 0;          ///< brackets that are open
  bool function_ = false;      ///< whether "NAME()" was read, and its body comes next
  std::vector<Group> groups_;  ///< that are open
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& file) {
  return ShellReader(text, file).read();
}

}  // namespace plimsoll
