// Follows the blocks of a shell script.
#include "interop/shell/block_reader.h"

#include <algorithm>
#include <utility>

#include "interop/shell/shell_keywords.h"

namespace plimsoll {
namespace {

/// Returns whether a text has the pattern of a "case"; nothing where that is not known.
std::optional<bool> has_pattern(const ShellWord& subject, const ShellWord& pattern) {
  if (pattern.text == "*") return true;
  if (!subject.unknown.empty() || !pattern.unknown.empty()) return std::nullopt;
  if (pattern.text.find_first_of("*?[") != std::string::npos) return std::nullopt;
  return subject.text == pattern.text;
}

}  // namespace

std::string_view BlockReader::where_set() const {
  const bool function =
      std::ranges::any_of(groups_, [](const Group& group) { return !group.function.empty(); });
  return function ? "in a function" : "under a condition";
}

void BlockReader::follow_block(const std::string& word) {
  if (begins_block(word)) {
    blocks_.push_back({word == "if" ? Runs::yes : Runs::perhaps});
    blocks_.back().opened = {assigned_.size(), piped_};
  }
  if (blocks_.empty()) return;
  Block& block = blocks_.back();
  if (word == "then") {
    block.begin_branch(truth_);
  } else if (word == "elif" || word == "else") {
    block.runs = block.unknown ? Runs::perhaps : block.taken ? Runs::no : Runs::yes;
  } else if (ends_block(word)) {
    closed_ = blocks_.back().opened;
    blocks_.pop_back();
    truth_.reset();
  }
}

void BlockReader::begin_case() {
  skip_blanks(false);
  ShellWord subject{"", line_};
  for (const ShellWord& word : read_word()) subject.add(word);
  skip_blanks(true);
  read_word();
  Block& block = blocks_.back();
  block.runs = Runs::yes;
  block.subject = subject;
  block.patterns_next = true;
}

void BlockReader::read_patterns() {
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

BlockReader::Runs BlockReader::runs() const {
  Runs all = and_or_;
  for (const Block& block : blocks_) all = std::max(all, block.runs);
  for (const Group& group : groups_) all = std::max(all, group.runs);
  return all;
}

bool BlockReader::defines() const { return std::ranges::any_of(groups_, &Group::defines); }

void BlockReader::begin_group(int subshells) {
  const bool defines = !function_.empty();
  groups_.push_back({defines ? Runs::perhaps : and_or_,
                     std::exchange(function_, ""),
                     defines,
                     subshells,
                     at_,
                     line_,
                     {assigned_.size(), piped_}});
}

void BlockReader::end_group(std::size_t end) {
  const Group group = groups_.back();
  groups_.pop_back();
  closed_ = group.opened;
  const Runs defined = runs();
  if (!group.defines || defined == Runs::no) return;
  Function function{std::string(text_.substr(group.begin, end - group.begin)), group.line,
                    assigned_.size(), commands_.size()};
  std::vector<Function>& bodies = functions_[group.function];
  if (defined == Runs::yes) bodies.clear();
  const bool known = outer_groups_ > 0 && std::ranges::any_of(bodies, [&](const Function& other) {
                       return other.line == function.line && other.body == function.body;
                     });
  if (!known) bodies.push_back(std::move(function));
}

void BlockReader::follow_group(const std::string& word) {
  if (word == "{") {
    begin_group(0);
  } else if (word == "}" && groups_.size() > outer_groups_) {
    end_group(at_ - 1);
  }
}

}  // namespace plimsoll
