// Reads shell scripts word by word.
#include "interop/shell/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "interop/shell/block_reader.h"
#include "interop/shell/shell_builtins.h"
#include "interop/shell/shell_keywords.h"
#include "interop/shell/shell_values.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostValueBytes = std::size_t{1} << 16;
constexpr int kMostNested = 16;  // calls of functions and eval within another

/// Values that variables had; empty: not set.
using Values = std::map<std::string, std::optional<ShellWords>>;

class ShellReader : private BlockReader {
 public:
  ShellReader(std::string_view text, const std::string& file) : BlockReader(text, file) {
    for (const auto& [name, value] : slurm_variables(text)) variables_[name] = {{value, 0}};
  }

  ShellScript read() {
    while (at_ < text_.size()) read_command();
    script_.variables = variables_;
    script_.variables.insert(environment_.begin(), environment_.end());
    const std::size_t notes = script_.notes.size();
    read_uncalled();
    script_.notes.resize(notes);
    script_.commands = std::move(commands_);
    std::set<std::string> seen;
    std::erase_if(script_.names, [&](const std::string& name) {
      return !script_.variables.contains(name) || !seen.insert(name).second;
    });
    return std::move(script_);
  }

 private:
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
    set(name, std::move(value), line, joins, array);
  }

  /// Assigns a value that is known if the assignment runs, and in this shell.
  void set(const std::string& name, ShellWords value, std::int64_t line, bool joins, bool array) {
    if (runs() == Runs::perhaps || subshells_ > 0) {
      const std::string why = fmt::format("${} is set {} (line {})", name, where_set(), line);
      value = {unknown_word("$" + name, why)};
    }
    assign(name, std::move(value), joins, array);
  }

  void keep(const std::string& name, Values& before) const {
    const auto known = variables_.find(name);
    before.emplace(name, known == variables_.end() ? std::nullopt : std::optional(known->second));
  }

  /// Makes unknown what a block assigns behind "|" or in front of "&": it is not the script's.
  void forget(std::size_t from) {
    for (std::size_t i = from, end = assigned_.size(); i < end; ++i) {
      const std::string why =
          fmt::format("${} is set in a subshell (line {})", assigned_[i], line_);
      variables_[assigned_[i]] = {unknown_word("$" + assigned_[i], why)};
    }
  }

  void restore(Values& before) {
    for (auto& [name, value] : before) {
      if (value) {
        variables_[name] = std::move(*value);
      } else {
        variables_.erase(name);
      }
    }
    before.clear();
  }

  ShellWord unknown_word(const std::string& spelling, const std::string& why) const {
    ShellWord word{"", line_};
    word.add_unknown(spelling, why);
    return word;
  }

  void assign(const std::string& name, ShellWords value, bool joins, bool array) {
    assigned_.push_back(name);
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

  /// Takes what separates two commands.
  void end_command() {
    piped_ = false;
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
      if (peek() == ')') {
        function_ = program_;
      } else if (!function_.empty()) {
        begin_group(subshells_);
      }
    } else if (c == '|') {
      piped_ = true;
      skips("&");
      skip_blanks(true);
    } else if (c == ')' && subshells_ > 0) {
      if (groups_.size() > outer_groups_ && groups_.back().subshells == subshells_)
        end_group(at_ - 1);
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

  /// Reads up to the end of a command. A file is passed over, and so is what ">" and "<" name.
  void read_command() {
    if (!blocks_.empty() && blocks_.back().patterns_next) read_patterns();
    ShellWords command;
    own_.clear();
    closed_.reset();
    Values before;            // its assignments: variables that it may have alone
    std::string declaration;  // whose options and names follow
    while (true) {
      skip_blanks(false);
      if (at_ >= text_.size()) break;
      const char c = peek();
      if (skips("<<<")) {
        skip_blanks(false);
        read_word();
        continue;
      }
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
      const bool assigns = program_at(command) == command.size();
      if (const std::string name = assigns ? assigned_name() : ""; !name.empty()) {
        if (declaration.empty()) keep(name, before);
        if (is_local(declaration)) keep(name, *locals_);
        read_assignment(name);
        continue;
      }
      const std::size_t number = text_.find_first_not_of("0123456789", at_);
      if (number != text_.npos && number > at_ && (text_[number] == '<' || text_[number] == '>')) {
        at_ = number;  // "2" of "2>&1"
        continue;
      }
      // Words have the values in front of the command's own assignments.
      for (const auto& [name, value] : before) {
        if (!variables_.contains(name)) continue;
        own_[name] = variables_[name];
        if (!value) environment_[name] = variables_[name];
      }
      restore(before);
      ShellWords words = read_word();
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
          const ShellWords name = read_word();
          program_ = function_ = name.empty() ? "" : name[0].text;
          continue;
        }
        if (!declaration.empty() && word.starts_with('-')) continue;
        if (declares(word)) declaration = word;
        if (goes_on(word)) continue;
      }
      command.insert(command.end(), words.begin(), words.end());
    }
    const bool apart = piped_ || (peek() == '|' && peek(1) != '|') ||
                       (peek() == '&' && peek(1) != '&');  // in a subshell
    if (apart) restore(before);
    if (closed_ && (apart || closed_->piped)) forget(closed_->assigned);
    for (const auto& [name, value] : std::exchange(defaults_, {})) {
      if (runs() != Runs::no && !apart) set(name, {value}, value.line, false, false);
    }
    if (!command.empty() && !declaration.empty()) {
      declare(declaration, command);
    } else if (!command.empty()) {
      program_ = command[0].text;
      const bool names_function = peek() == '(' && peek(1) == ')';
      if (!names_function) end_words(std::move(command));
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
    // The words of a function have the values of its call.
    if (keeps_ && !defines() && (nested_ == 0 || kept_.insert(command).second))
      commands_.push_back(command);
    follow_program(command);
  }

  /// Whether a declaration sets variables of the function that is called.
  bool is_local(const std::string& declaration) const {
    return locals_ != nullptr && !declaration.empty() && declaration != "export";
  }

  /// The names of a declaration that are no plain assignments: "NAME", $A, "NAME=VALUE" in quotes.
  void declare(const std::string& declaration, const ShellWords& words) {
    if (runs() == Runs::no) return;
    truth_ = true;
    for (const ShellWord& word : words) {
      const std::size_t equals = word.text.find('=');
      const std::string name = word.text.substr(0, equals);
      if (!is_variable_name(name)) {
        if (!word.unknown.empty()) note(fmt::format("{} {}", declaration, word.text));
        continue;
      }
      if (is_local(declaration)) keep(name, *locals_);
      if (equals == word.text.npos) continue;
      ShellWord value{word.text.substr(equals + 1), line_};
      if (!word.unknown.empty()) value = unknown_word("$" + name, word.unknown);
      set(name, {value}, line_, false, false);
    }
  }

  /// Notes what may set variables and is not read.
  void note(const std::string& what) {
    script_.notes.push_back(fmt::format(
        "line {}: {} is not read: it may set variables of the command", line_, printable(what)));
  }

  /// Follows a command that sets variables: a builtin or a function of the script.
  void follow_program(const ShellWords& command) {
    const std::size_t at = program_at(command);
    if (at == command.size()) return;
    const std::string& program = command[at].text;
    const ShellWords arguments(command.begin() + std::ptrdiff_t(at) + 1, command.end());
    const std::string first = arguments.empty() ? "" : arguments[0].text;
    for (const std::string& name : set_by_builtin(program, arguments)) {
      const std::string why = fmt::format("${} is set by {} (line {})", name, program, line_);
      assign(name, {unknown_word("$" + name, why)}, false, false);
    }
    if (functions_.contains(program)) {
      call(program);
    } else if (program == "unset" && first != "-f") {
      unset(arguments);
    } else if (program == "eval") {
      std::string text;
      for (const ShellWord& word : arguments) text += word.text + " ";
      read_again(text, line_, {runs()});
    } else if ((program == "source" || program == ".") && !first.empty()) {
      note(first);
    } else if (nested_ > 0 && !command[at].unknown.empty()) {
      note(program);
    }
  }

  void unset(const ShellWords& names) {
    for (const ShellWord& name : names) {
      if (!variables_.contains(name.text)) continue;
      assigned_.push_back(name.text);
      if (runs() == Runs::yes && subshells_ == 0) {
        variables_.erase(name.text);
      } else {
        set(name.text, {{"", line_}}, line_, false, false);
      }
    }
  }

  /// Its body runs with arguments that are not known: what it sets is unknown. One call is as good
  /// as several within another.
  void call(const std::string& name) {
    const bool outermost = called_.empty();
    if (!called_.insert(name).second) return;
    if (!defines()) {
      for (Function& function : functions_[name]) function.called = true;
    }
    const Values own = own_;
    for (const Function& function : std::vector<Function>(functions_[name])) {
      own_ = own;
      Values locals;
      Values* const outer = std::exchange(locals_, &locals);
      read_again(function.body, function.line, {Runs::perhaps, name});
      locals_ = outer;
      restore(locals);
    }
    if (outermost) called_.clear();
  }

  /// Reads the functions that no command calls: another program may, at any time behind them. The
  /// last is first, as a function calls those in front of it.
  void read_uncalled() {
    while (!groups_.empty()) end_group(text_.size());
    blocks_.clear();
    and_or_ = Runs::yes;
    subshells_ = 0;
    std::vector<std::pair<Function, std::string>> functions;
    for (const auto& [name, bodies] : functions_) {
      for (const Function& function : bodies) functions.emplace_back(function, name);
    }
    std::ranges::stable_sort(functions, std::greater(),
                             [](const auto& function) { return function.first.line; });
    std::vector<ShellWords> behind;        // the last is first
    std::size_t known = assigned_.size();  // the assignments in front of a function
    for (const auto& [function, name] : functions) {
      if (functions_[name].front().called) continue;  // a call is of all bodies
      while (known > function.assigned) {
        const std::string& set = assigned_[--known];
        const std::string why = fmt::format("${} is set after the function of this command", set);
        variables_[set] = {unknown_word("$" + set, why)};
      }
      for (; commands_.size() > function.commands; commands_.pop_back())
        behind.push_back(std::move(commands_.back()));
      own_.clear();
      read_again(function.body, function.line, {Runs::perhaps, name});
    }
    commands_.insert(commands_.end(), behind.rbegin(), behind.rend());
  }

  /// Reads a text that a command runs in its place. The words of "eval" are a command themselves:
  /// its text is read for the variables that it sets, and for the functions that it calls.
  void read_again(const std::string& text, std::int64_t line, const Group& group) {
    if (nested_ == kMostNested) return note(program_);
    count(text.size());
    const auto outside = std::tuple(text_, at_, line_, subshells_, piped_, outer_groups_);
    Values before;
    for (auto& [name, value] : std::exchange(own_, {})) {
      keep(name, before);
      variables_[name] = std::move(*value);
    }
    const std::vector<Block> blocks = blocks_;
    const std::vector<Group> groups = groups_;
    const bool keeps = std::exchange(keeps_, !group.function.empty());
    groups_.push_back(group);
    outer_groups_ = groups_.size();
    std::tie(text_, at_, line_) = std::tuple(std::string_view(text), std::size_t{0}, line);
    ++nested_;
    while (at_ < text_.size()) read_command();
    --nested_;
    std::tie(text_, at_, line_, subshells_, piped_, outer_groups_) = outside;
    restore(before);
    blocks_ = blocks;
    groups_ = groups;
    keeps_ = keeps;
    truth_.reset();
  }

  std::string program_;           ///< the first word of the last command
  std::set<std::string> called_;  ///< functions, by the outermost call
  Values* locals_ = nullptr;      ///< variables that the function has alone
  int nested_ = 0;                ///< texts that are read again
  bool keeps_ = true;             ///< whether commands are the script's
  std::set<ShellWords> kept_;     ///< commands of functions that are called
  Values own_;                    ///< what the command assigns in front of its words
  /// Variables that a command has alone, and the script has not.
  std::map<std::string, ShellWords, std::less<>> environment_;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& file) {
  return ShellReader(text, file).read();
}

}  // namespace plimsoll
