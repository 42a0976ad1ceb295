// Evaluates what a script's text determines.
#include "interop/shell/shell_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace plimsoll {
namespace {

using Value = std::optional<std::int64_t>;

constexpr std::int64_t kMostValue = std::int64_t{1} << 53;
constexpr int kMostDepth = 100;  ///< of brackets and variables in each other

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

Value integer_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all = error == std::errc() && end == text.data() + text.size();
  return all && value >= -kMostValue && value <= kMostValue ? Value(value) : std::nullopt;
}

struct Operator {
  std::string_view sign;
  int level;  ///< a higher one binds more tightly
};

// Longer signs come before those that they begin with.
constexpr Operator kOperators[] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3}, {"<=", 4},
                                   {">=", 4}, {"<", 4},  {">", 4},  {"+", 5},  {"-", 5},
                                   {"*", 6},  {"/", 6},  {"%", 6}};

Value applied(std::string_view sign, std::int64_t a, std::int64_t b) {
  if (sign == "||") return a != 0 || b != 0;
  if (sign == "&&") return a != 0 && b != 0;
  if (sign == "==") return a == b;
  if (sign == "!=") return a != b;
  if (sign == "<=") return a <= b;
  if (sign == ">=") return a >= b;
  if (sign == "<") return a < b;
  if (sign == ">") return a > b;
  if ((sign == "/" || sign == "%") && b == 0) return std::nullopt;
  if (sign == "/") return a / b;
  if (sign == "%") return a % b;
  __int128 wide = a;
  wide = sign == "+" ? wide + b : sign == "-" ? wide - b : wide * b;
  if (wide < -kMostValue || wide > kMostValue) return std::nullopt;
  return std::int64_t(wide);
}

/// Reads an expression by the levels of its operators.
class Arithmetic {
 public:
  Arithmetic(std::string_view text, const VariableText& variable, int depth)
      : text_(text), variable_(variable), depth_(depth) {}

  Value whole() {
    const Value value = expression(1);
    skip_blanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n') ++at_;
  }

  const Operator* next_operator() {
    skip_blanks();
    for (const Operator& one : kOperators) {
      if (text_.substr(at_).starts_with(one.sign)) return &one;
    }
    return nullptr;
  }

  Value expression(int level) {
    if (++depth_ > kMostDepth) return std::nullopt;
    Value value = operand();
    for (const Operator* next = next_operator(); value && next != nullptr && next->level >= level;
         next = next_operator()) {
      at_ += next->sign.size();
      const Value right = expression(next->level + 1);
      value = right ? applied(next->sign, *value, *right) : std::nullopt;
    }
    --depth_;
    return value;
  }

  Value operand() {
    skip_blanks();
    const char c = peek();
    if (c == '-' || c == '!' || c == '+') {
      ++at_;
      if (++depth_ > kMostDepth) return std::nullopt;
      const Value value = operand();
      --depth_;
      if (!value) return std::nullopt;
      return c == '-' ? -*value : c == '+' ? *value : std::int64_t(*value == 0);
    }
    if (c == '(') {
      ++at_;
      const Value value = expression(1);
      skip_blanks();
      if (peek() != ')') return std::nullopt;
      ++at_;
      return value;
    }
    if (is_digit(c)) return number();
    return name();
  }

  Value number() {
    const std::size_t begin = at_;
    while (is_digit(peek()) || is_letter(peek())) ++at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    // A 0 in front makes a number octal.
    return digits.size() > 1 && digits[0] == '0' ? std::nullopt : integer_of(digits);
  }

  /// "NAME", "$NAME" or "${NAME}".
  Value name() {
    const bool dollar = peek() == '$';
    if (dollar) ++at_;
    const bool braces = dollar && peek() == '{';
    if (braces) ++at_;
    const std::size_t begin = at_;
    while (is_letter(peek()) || (at_ > begin && is_digit(peek()))) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty() || (braces && peek() != '}')) return std::nullopt;
    if (braces) ++at_;
    const auto text = variable_(name);
    if (!text || depth_ >= kMostDepth) return std::nullopt;
    return Arithmetic(*text, variable_, depth_ + 1).whole();
  }

  std::string_view text_;
  const VariableText& variable_;
  int depth_;
  std::size_t at_ = 0;
};

std::optional<bool> compared(const std::string& a, std::string_view sign, const std::string& b,
                             bool pattern) {
  if (sign == "=" || sign == "==" || sign == "!=") {
    if (pattern && b.find_first_of("*?[") != b.npos) return std::nullopt;
    return (a == b) == (sign != "!=");
  }
  constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"-eq", "=="}, {"-ne", "!="}, {"-lt", "<"}, {"-le", "<="}, {"-gt", ">"}, {"-ge", ">="}};
  for (const auto& [word, same] : kSigns) {
    if (sign != word) continue;
    const Value left = integer_of(a), right = integer_of(b);
    if (!left || !right) return std::nullopt;
    return applied(same, *left, *right) != 0;
  }
  return std::nullopt;
}

/// Returns the truth of what stands between the brackets of a test.
std::optional<bool> tested(const std::vector<std::string>& words, bool pattern) {
  if (!words.empty() && words[0] == "!") {
    const auto inner = tested({words.begin() + 1, words.end()}, pattern);
    return inner ? std::optional(!*inner) : std::nullopt;
  }
  if (words.size() == 1) return !words[0].empty();
  if (words.size() == 2 && words[0] == "-n") return !words[1].empty();
  if (words.size() == 2 && words[0] == "-z") return words[1].empty();
  if (words.size() == 3) return compared(words[0], words[1], words[2], pattern);
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> arithmetic_value(std::string_view text, const VariableText& variable) {
  return Arithmetic(text, variable, 0).whole();
}

std::vector<std::string> set_by_arithmetic(std::string_view text) {
  std::string plain(text);
  for (const std::string_view sign : {"==", "!=", "<=", ">="}) {
    for (std::size_t at = plain.find(sign); at != plain.npos; at = plain.find(sign))
      plain.replace(at, sign.size(), " ");
  }
  const bool sets = plain.find('=') != plain.npos || plain.find("++") != plain.npos ||
                    plain.find("--") != plain.npos;
  std::vector<std::string> names;
  for (std::size_t at = 0; sets && at < text.size(); ++at) {
    const std::size_t begin = at;
    while (at < text.size() && (is_letter(text[at]) || (at > begin && is_digit(text[at])))) ++at;
    if (at > begin) names.emplace_back(text.substr(begin, at - begin));
  }
  return names;
}

std::optional<bool> truth_of(const ShellWords& command) {
  std::vector<std::string> words;
  for (const ShellWord& word : command) {
    if (!word.unknown.empty()) return std::nullopt;
    words.push_back(word.text);
  }
  while (!words.empty() && (words[0] == "if" || words[0] == "elif")) words.erase(words.begin());
  if (words.empty()) return std::nullopt;
  if (words[0] == "!") {
    ShellWords rest(command.end() - std::ptrdiff_t(words.size()) + 1, command.end());
    const auto inner = truth_of(rest);
    return inner ? std::optional(!*inner) : std::nullopt;
  }
  if (words.size() == 1 && (words[0] == "true" || words[0] == ":")) return true;
  if (words.size() == 1 && words[0] == "false") return false;
  const bool pattern = words[0] == "[[";
  const bool single = words[0] == "[";
  if (!pattern && !single && words[0] != "test") return std::nullopt;
  if (pattern || single) {
    if (words.size() < 2 || words.back() != (pattern ? "]]" : "]")) return std::nullopt;
    words.pop_back();
  }
  words.erase(words.begin());
  if (words.empty()) return false;
  return tested(words, pattern);
}

namespace {

/// The value of one of the options in a line, "--nodes=4", "--nodes 4" or "-N 4"; a word before
/// a colon is the kind of GPU: "--gres=gpu:h100:8".
Value option_value(std::string_view line, const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) {
    const std::size_t at = line.find(name);
    if (at == line.npos || (at > 0 && line[at - 1] != ' ' && line[at - 1] != '\t')) continue;
    std::string_view rest = line.substr(at + name.size());
    const bool sets = rest.starts_with('=') || rest.starts_with(' ') || rest.starts_with('\t');
    if (!sets && name.starts_with("--")) continue;
    while (rest.starts_with('=') || rest.starts_with(' ') || rest.starts_with('\t'))
      rest.remove_prefix(1);
    rest = rest.substr(0, rest.find_first_of(" \t\r#,"));
    return integer_of(rest.substr(rest.rfind(':') + 1));
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, std::string, std::less<>> slurm_variables(std::string_view script) {
  Value nodes, tasks, tasks_per_node, gpus_per_node, gpus;
  for (std::size_t begin = 0; begin < script.size();) {
    const std::size_t end = std::min(script.find('\n', begin), script.size());
    const std::string_view line = script.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with("#SBATCH")) continue;
    const auto read = [&](Value& value, const std::vector<std::string_view>& names) {
      if (const Value stated = option_value(line, names)) value = stated;
    };
    read(nodes, {"--nodes", "-N"});
    read(tasks, {"--ntasks", "-n"});
    read(tasks_per_node, {"--ntasks-per-node"});
    read(gpus_per_node, {"--gpus-per-node"});
    if (line.find("gres") != line.npos && line.find("gpu") != line.npos)
      read(gpus_per_node, {"--gres"});
    read(gpus, {"--gpus", "-G"});
  }
  if (!gpus_per_node && gpus && nodes && *nodes > 0 && *gpus % *nodes == 0)
    gpus_per_node = *gpus / *nodes;
  if (!tasks && tasks_per_node && nodes) tasks = applied("*", *nodes, *tasks_per_node);
  std::map<std::string, std::string, std::less<>> variables;
  const auto set = [&](Value value, std::initializer_list<const char*> names) {
    if (!value || *value < 1) return;
    for (const char* name : names) variables[name] = fmt::format("{}", *value);
  };
  set(nodes, {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  set(tasks, {"SLURM_NTASKS", "SLURM_NPROCS"});
  set(tasks_per_node, {"SLURM_NTASKS_PER_NODE"});
  set(gpus_per_node, {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"});
  return variables;
}

}  // namespace plimsoll
