// Follows the blocks of a shell script.
#include "imports/shell/block_reader.h"

#include <algorithm>

#include "imports/shell/shell_keywords.h"

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

void BlockReader::follow_group(const std::string& word) {
  if (word == "{") {
    const Runs runs = function_.empty() ? and_or_ : Runs::perhaps;
    groups_.push_back({runs, function_, at_, line_, {assigned_.size(), piped_}});
    function_.clear();
  } else if (word == "}" && groups_.size() > outer_groups_) {
    const Group& group = groups_.back();
    if (!group.function.empty())
      functions_[group.function] = {std::string(text_.substr(group.begin, at_ - 1 - group.begin)),
                                    group.line};
    closed_ = group.opened;
    groups_.pop_back();
  }
}

}  // namespace plimsoll
