// The checker: every rule over one plan, without simulator or planner.
#include "plan/check.h"

#include <algorithm>
#include <cmath>

#include "passes/pipeline.h"
#include "plan/check_rules.h"

namespace plimsoll {
namespace {

std::vector<CheckRule> all_rules() {
  std::vector<CheckRule> all;
  for (auto table :
       {strategy_rules(), program_rules(), prediction_rules(), timeline_rules(), search_rules()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

/// The passes take legal input only; anything else is reported by the strategy's own rules.
bool can_lower(const Plan& plan) {
  const auto rules = strategy_rules();
  const CheckContext context{plan, {}, {}};
  return std::none_of(rules.begin(), rules.end(),
                      [&](const CheckRule& rule) { return rule.check(context).has_value(); });
}

}  // namespace

std::vector<Rule> rules() {
  std::vector<Rule> result;
  for (const CheckRule& entry : all_rules()) result.push_back(entry.rule);
  return result;
}

std::vector<Violation> check(const Plan& plan) {
  CheckContext context{plan, {}, {}};
  if (can_lower(plan)) {
    context.programs = lower({plan.job, plan.strategy, plan.framework});
    for (const Program& program : context.programs) context.memory.push_back(memory_peak(program));
  }
  std::vector<Violation> violations;
  for (const CheckRule& entry : all_rules()) {
    if (Finding finding = entry.check(context)) {
      violations.push_back({std::string(entry.rule.name), std::move(*finding)});
    }
  }
  return violations;
}

bool nearly_equal(double a, double b) {
  // An infinite bound would be near everything.
  return std::isfinite(a) && std::isfinite(b) &&
         std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

}  // namespace plimsoll
