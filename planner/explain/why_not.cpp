// Sets the asked choices beside the plan: as they stand, and in the best plan that has them.
#include "planner/explain/why_not.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/explore/assess.h"
#include "planner/refusal/refuse.h"
#include "planner/search/search.h"
#include "planner/space/recompute_forms.h"

namespace plimsoll {
namespace {

AskedStep beside(const Target& target, ExplainedStep step, const PlanTime& plan) {
  const StepRatio ratio = step_ratio(*target.costs, time_of(target, step), plan);
  return {std::move(step), ratio};
}

/// Returns the request with the asked choices in place of those that the search held, limited or
/// tried.
ExplainRequest with_asked(const ExplainRequest& request, const Fixed& asked) {
  ExplainRequest changed = request;
  for (const auto& [key, value] : asked) free_key(changed.constraints, key);
  Fixed& fixed = changed.constraints.fixed;
  fixed.insert(fixed.begin(), asked.begin(), asked.end());
  return changed;
}

void find_best(const ExplainRequest& request, const PlanTime& plan, WhyNot& answer) {
  try {
    const Plan best = best_plan(with_asked(request, answer.asked), request.target);
    answer.best_is_proven = best.search.proven;
    answer.best = beside(request.target, explain_step(request.target, best.strategy), plan);
  } catch (const NothingFoundYet& stopped) {
    answer.none = stopped.what();
  } catch (const NothingFits&) {  // its words depend on the time that there was for them
    answer.none = "no strategy with these choices fits";
    answer.best_is_proven = true;
  } catch (const InfeasibleError& none) {
    answer.none = none.what();
    answer.best_is_proven = true;
  }
}

/// The changed plan has choices of the plan that the search for the best does not try, and may be
/// faster than what that search finds.
void keep_faster(WhyNot& answer) {
  const Seconds asked = answer.as_asked->step.prediction.step_time;
  if (answer.best && answer.best->step.prediction.step_time <= asked) return;
  answer.best = answer.as_asked;
  answer.none.clear();
}

}  // namespace

Fixed parse_choices(const std::string& text) {
  Fixed choices;
  Strategy any;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string pair = text.substr(begin, end - begin);
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("--why-not: expected KEY=VALUE, found \"{}\"", pair));
    }
    const std::string key(strategy_key(pair.substr(0, equals))), value = pair.substr(equals + 1);
    if (is_fixed(choices, key)) throw UsageError(fmt::format("--why-not: {} is given twice", key));
    set_field(any, key, value);
    choices.emplace_back(key, value);
    begin = end + 1;
  }
  return choices;
}

/// Returns the request's strategy with the asked choices. Layers are recomputed for want of memory,
/// so other degrees of the model take the fastest form of recompute that fits; the plan's if none
/// does.
Strategy changed_as_asked(const ExplainRequest& request, const Fixed& asked) {
  const Target& target = request.target;
  const Strategy& plan = request.strategy;
  Strategy changed = with_choices(plan, asked, target.devices);
  const auto degrees = [](const Strategy& s) {
    return std::tuple(s.mp, s.pp, s.cp, s.ep, s.experts.etp);
  };
  const bool names_recompute = std::ranges::any_of(
      asked, [](const auto& choice) { return choice.first.starts_with("recompute"); });
  if (names_recompute || degrees(changed) == degrees(plan)) return changed;
  std::vector<Candidate> forms;
  const auto add = [&](const Strategy& strategy) {
    if (legal(target, strategy)) forms.push_back(assess(target, strategy, forms.size()));
  };
  add(changed);
  for (const RecomputeForm& form : recompute_forms(target.job, target.framework(), {}, changed)) {
    Strategy other = changed;
    drop_recompute(other);
    other.recompute = form.recompute;
    other.recomputed.modules = form.modules;
    if (other != changed) add(other);
  }
  confirm_memory(target, forms, request.threads);
  std::erase_if(forms, [](const Candidate& form) { return !feasible(form); });
  if (forms.empty()) return changed;
  return std::ranges::min_element(forms, better)->strategy;
}

WhyNot why_not(const ExplainRequest& request, const Fixed& asked) {
  const Target& target = request.target;
  WhyNot answer;
  answer.asked = asked;
  answer.plan = explain_step(target, request.strategy);
  answer.changed = changed_as_asked(request, asked);
  answer.is_plan = answer.changed == request.strategy;
  if (answer.is_plan) return answer;
  const PlanTime plan = time_of(target, answer.plan);
  bool fits = false;
  if (const Verdict verdict = legal(target, answer.changed)) {
    try {
      answer.as_asked = beside(target, explain_step(target, answer.changed), plan);
      fits = answer.as_asked->step.fits;
    } catch (const InfeasibleError& too_long) {
      answer.rule = too_long.what();
    }
  } else {
    answer.rule = verdict.reason();
  }
  find_best(request, plan, answer);
  if (fits) {
    keep_faster(answer);
  } else {
    answer.least = least_changes_of(request, answer.changed, asked, plan);
  }
  return answer;
}

}  // namespace plimsoll
