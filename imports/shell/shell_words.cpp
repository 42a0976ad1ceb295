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
};

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
      const std::string why = fmt::format("${} is set under a condition (line {})", name, line);
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

  /// Follows the words that begin and end what runs under a condition, or several times.
  void follow_block(const std::string& word) {
    if (begins_block(word)) blocks_.push_back({word == "if" ? Runs::yes : Runs::perhaps});
    if (blocks_.empty()) return;
    Block& block = blocks_.back();
    const Runs left = block.unknown ? Runs::perhaps : block.taken ? Runs::no : Runs::yes;
    if (word == "then") {
      block.runs = left == Runs::yes ? runs_if(truth_) : left;
      block.taken = block.taken || block.runs == Runs::yes;
      block.unknown = block.unknown || block.runs == Runs::perhaps;
    } else if (word == "elif" || word == "else") {
      block.runs = left;
    } else if (ends_block(word)) {
      blocks_.pop_back();
      truth_.reset();
    }
  }

  /// Whether what is read runs, by the conditions around it.
  Runs runs() const {
    Runs all = and_or_;
    for (const Block& block : blocks_) all = std::max(all, block.runs);
    for (const Runs group : groups_) all = std::max(all, group);
    return all;
  }

  /// Follows the brackets of groups and of functions' bodies.
  void follow_group(const std::string& word) {
    if (word == "{") {
      groups_.push_back(function_ ? Runs::perhaps : and_or_);
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
    if (c == '(') {
      ++subshells_;
      function_ = peek() == ')';
    } else if (c == ')' && subshells_ > 0) {
      --subshells_;
    }
  }

  /// "((...))", behind its first brackets: a command whose truth is a value.
  ShellWord read_arithmetic() {
    const std::string_view text = inside_brackets('(', ')', line_);
    if (peek() == ')') take();
    const auto value = arithmetic(text);
    const std::vector<std::string> names = set_by_arithmetic(text);
    for (const std::string& name : names) {
      if (runs() == Runs::no || !variables_.contains(name)) continue;
      const std::string why = fmt::format("${} is set by arithmetic (line {})", name, line_);
      assign(name, {unknown_word("$" + name, why)}, false, false);
    }
    if (!value || !names.empty())
      return unknown_word("((...))", "its value is not known from this file");
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
  std::vector<Runs> groups_;   ///< open "{"
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& file) {
  return ShellReader(text, file).read();
}

}  // namespace plimsoll
