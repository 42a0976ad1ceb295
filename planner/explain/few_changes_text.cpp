// Writes what limits a running job, and which one or two choices to change first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "passes/strategy/strategy_fields.h"
#include "plan/json_layout.h"
#include "planner/explain/explain_json.h"
#include "planner/explain/explain_text.h"
#include "planner/explain/few_changes.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

void add_changes(std::string& text, const Target& target, const ExplainedStep& step,
                 const std::vector<AssessedChange>& changes) {
  for (const AssessedChange& change : changes) {
    text += change_row(change, step.strategy, step.prediction.step_time);
    const std::vector<std::string> flags =
        flag_changes(target.job, target.framework(), step.strategy, change.strategy);
    if (!flags.empty()) text += fmt::format("        {}\n", fmt::join(flags, ", "));
  }
}

/// Returns a change with the options of the framework that change, else with its words.
std::string change_words(const Target& target, const ExplainedStep& step,
                         const AssessedChange& change) {
  const Job& job = target.job;
  const std::vector<std::string> flags =
      flag_changes(job, target.framework(), step.strategy, change.strategy);
  return fmt::format("{:+.1f} %: {}", 100 * (change.step_time / step.prediction.step_time - 1),
                     flags.empty() ? fields_text(differing_fields(change.strategy, step.strategy))
                                   : fmt::format("{}", fmt::join(flags, ", ")));
}

}  // namespace

std::string few_changes_brief(const Target& target, const ExplainedStep& step,
                              const FewChanges& found) {
  constexpr std::size_t kMostLines = 12;  // a headline and the commands come on top
  std::string text =
      explain_line("layout", layout_text(target.job, target.framework(), step.strategy));
  text +=
      explain_line("step", step_words(step.prediction) + (step.fits ? "" : "; it does not fit"));
  text += limits_text(step);
  if (found.one.found.empty() && found.two.found.empty())
    return text + explain_line("change", found.one.proven && found.two.proven
                                             ? "no single change and no pair is faster"
                                             : "none found; not looked at to the end");
  std::vector<const AssessedChange*> best;
  if (!found.two.found.empty()) best.push_back(&found.two.found.front());
  for (const AssessedChange& change : found.one.found) best.push_back(&change);
  std::string changes;
  for (const AssessedChange* change : best) {
    const std::string line =
        explain_line(changes.empty() ? "change" : "", change_words(target, step, *change));
    if (!changes.empty() && count_lines(text + changes + line) > kMostLines) break;
    changes += line;
  }
  return text + changes;
}

std::string few_changes_text(const Target& target, const ExplainedStep& step,
                             const FewChanges& found) {
  const Prediction& p = step.prediction;
  std::string text = fmt::format("strategy    {}\n", strategy_summary(step.strategy));
  text += fmt::format("step        {} (90 % interval {} to {}), MFU {:.1f} %{}\n",
                      to_text(p.step_time), to_text(p.step_time_low), to_text(p.step_time_high),
                      100 * p.mfu, step.fits ? "" : "; by prediction it does not fit");
  text += limits_text(step);
  const auto unproven = [](bool proven) {
    return proven ? "" : "; a change that was not looked at may be faster";
  };
  if (found.one.found.empty()) {
    text += fmt::format("one choice changed: none {}faster{}\n",
                        found.one.proven ? "is " : "found that is ", unproven(found.one.proven));
  } else {
    text += fmt::format("one choice changed, best first; memory is what a device shows{}\n",
                        unproven(found.one.proven));
  }
  add_changes(text, target, step, found.one.found);
  text += fmt::format("two choices changed{}{}\n",
                      !found.two.found.empty() ? ", if faster than each single change"
                      : found.two.proven       ? ": no pair is faster than that"
                                               : ": no faster pair was found",
                      unproven(found.two.proven));
  add_changes(text, target, step, found.two.found);
  return text;
}

std::string few_changes_json(const Target& target, const ExplainedStep& step,
                             const FewChanges& found) {
  const auto changes = [&](const std::vector<AssessedChange>& all) {
    Json json = Json::array();
    for (const AssessedChange& change : all) {
      json.push_back(change_json(change));
      json.back()["flags"] =
          flag_changes(target.job, target.framework(), step.strategy, change.strategy);
    }
    return json;
  };
  return line_text({{"job", target.job.name},
                    {"devices", target.devices},
                    {"step", step_json(step)},
                    {"one_choice_changed", changes(found.one.found)},
                    {"one_is_best", found.one.proven},
                    {"two_choices_changed", changes(found.two.found)},
                    {"two_is_best", found.two.proven}});
}

}  // namespace plimsoll
