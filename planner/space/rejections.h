// Rejections: candidates that break a rule, counted by rule.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll {

/// Counts candidates by the rule that each breaks. Reasons that differ in numbers alone are one
/// rule.
class Rejections {
 public:
  void count(const std::string& reason);
  /// Counts a candidate that breaks no rule, but whose plans are in the space without it.
  void count_repeated(const std::string& reason);
  bool empty() const { return rules_.empty(); }
  /// Returns the reason of the commonest rule, as the first candidate that broke the rule has it.
  const std::string& commonest() const;
  /// Returns the rules in order of discovery, with N for each number, then reasons of repeated
  /// candidates.
  std::vector<Pruned> take_rules();

 private:
  std::vector<Pruned> rules_, repeated_;
  std::vector<std::string> examples_;  ///< by rule
};

}  // namespace plimsoll
