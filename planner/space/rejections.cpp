// Groups reasons by their text without numbers.
#include "planner/space/rejections.h"

#include <algorithm>
#include <cctype>

namespace plimsoll {
namespace {

/// Returns a reason with N for each number, since "heads (7) ..." and "heads (9) ..." break the
/// same rule. Digits inside a word ("fp32", "megatron-lm-2021") belong to a name and stay.
std::string rule_of(const std::string& reason) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto within_name = [&](std::size_t i) {
    if (i > 0 && in_word(reason[i - 1])) return true;
    return i > 1 && reason[i - 1] == '-' && in_word(reason[i - 2]);
  };
  std::string rule;
  for (std::size_t i = 0; i < reason.size();) {
    if (!is_digit(reason[i]) || within_name(i)) {
      rule += reason[i++];
      continue;
    }
    while (i < reason.size() && is_digit(reason[i])) ++i;
    rule += 'N';
  }
  return rule;
}

/// Counts a reason. Returns whether it is new.
bool add(const std::string& reason, std::vector<Pruned>& counts) {
  const auto known = std::ranges::find(counts, reason, &Pruned::reason);
  if (known != counts.end()) {
    ++known->count;
    return false;
  }
  counts.push_back({reason, 1});
  return true;
}

}  // namespace

void Rejections::count(const std::string& reason) {
  if (add(rule_of(reason), rules_)) examples_.push_back(reason);
}

void Rejections::count_repeated(const std::string& reason) { add(reason, repeated_); }

std::vector<Pruned> Rejections::take_rules() {
  rules_.insert(rules_.end(), repeated_.begin(), repeated_.end());
  return std::move(rules_);
}

const std::string& Rejections::commonest() const {
  const auto most = std::ranges::max_element(rules_, {}, &Pruned::count);
  return examples_[std::size_t(most - rules_.begin())];
}

}  // namespace plimsoll
