// Looks for the one or two changes of a strategy that shorten its step most, or let it fit.
#include "planner/explain/few_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "interop/flags/framework_flags.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/explain/explain_json.h"
#include "planner/explain/explain_text.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

/// Least changes that are named, and changes to fit of a kind.
constexpr std::size_t kMostLeastChanges = 3;

/// Returns the words behind each option.
std::map<std::string, std::string> by_option(const std::vector<std::vector<std::string>>& flags) {
  std::map<std::string, std::string> words;
  for (const std::vector<std::string>& flag : flags)
    words[flag[0]] = fmt::format("{}", fmt::join(flag.begin() + 1, flag.end(), " "));
  return words;
}

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
  const std::vector<std::string> flags =
      flag_changes(target.job, target.framework(), step.strategy, change.strategy);
  return fmt::format("{}: {}",
                     ratio_text(change.step_time, step.prediction.step_time, change.ratio),
                     flags.empty() ? fields_text(differing_fields(change.strategy, step.strategy))
                                   : fmt::format("{}", fmt::join(flags, ", ")));
}

}  // namespace

FewChanges few_changes(const ExplainRequest& request, const PlanTime& own) {
  const Bounds bounds(request.target);
  const std::vector<Fixed> singles = neighbours(request.target, request.strategy, Reach::all);
  const auto faster = [&](const std::vector<Fixed>& changes, Seconds than) {
    return fastest(request, bounds, request.strategy, changes, own,
                   {kMostFewChanges, (1 - kLeastGain) * than, true});
  };
  Fastest one = faster(singles, own.step_time);
  const Seconds best = one.found.empty() ? own.step_time : merit(one.found.front());
  return {std::move(one), faster(pairs_of(singles, singles), best)};
}

LeastChanges least_changes_of(const ExplainRequest& request, const Strategy& changed,
                              const Fixed& asked, const PlanTime& plan) {
  std::vector<Fixed> singles = neighbours(request.target, changed, Reach::to_fit);
  const auto others = std::ranges::stable_partition(
      singles, [&](const Fixed& change) { return share_a_key(change, asked); });
  const std::vector<Fixed> of_others(others.begin(), others.end());
  const std::vector<Fixed> of_asked(singles.begin(), others.begin());
  const auto mixed = [&] {
    std::vector<Fixed> pairs = pairs_of(of_asked, of_others);
    std::ranges::move(pairs_of(of_asked, of_asked), std::back_inserter(pairs));
    return pairs;
  };
  const Bounds bounds(request.target);
  LeastChanges least;
  const auto found = [&](std::size_t choices, bool keeps_asked, const std::vector<Fixed>& changes) {
    Fastest one = fastest(request, bounds, changed, changes, plan, {kMostLeastChanges});
    least.proven = least.proven && one.proven;
    if (one.found.empty()) return false;
    least.found = std::move(one.found);
    least.choices = choices;
    least.keeps_asked = keeps_asked;
    return true;
  };
  // Each list is built when it is reached: there are many pairs.
  found(1, true, of_others) || found(2, true, pairs_of(of_others, of_others)) ||
      found(1, false, of_asked) || found(2, false, mixed());
  return least;
}

FoundChanges changes_to_fit(const ExplainRequest& request, const PlanTime& own) {
  const Bounds bounds(request.target);
  const std::vector<Fixed> singles = neighbours(request.target, request.strategy, Reach::to_fit);
  FoundChanges changes;
  const auto find = [&](ChangeKind kind, const std::vector<Fixed>& all) {
    const Fastest best =
        fastest(request, bounds, request.strategy, all, own, {kMostLeastChanges, {}, true});
    changes.proven = changes.proven && best.proven;
    for (const AssessedChange& one : best.found) {
      changes.fitting.push_back(
          {kind, "with " + fields_text(differing_fields(one.strategy, request.strategy)),
           one.strategy, one.need, one.step_time, one.unusual});
    }
  };
  std::map<ChangeKind, std::vector<Fixed>> by_kind;
  for (const Fixed& change : singles) by_kind[kind_of(change)].push_back(change);
  for (const auto& [kind, of_kind] : by_kind) find(kind, of_kind);
  // Among pairs the fastest comes first, whatever the kinds of its parts.
  if (changes.fitting.empty()) find(ChangeKind::other, pairs_of(singles, singles));
  if (!changes.proven) {
    changes.notes.emplace_back("changes of one or two choices were not looked at to the end");
  } else if (changes.fitting.empty()) {
    changes.notes.emplace_back("no change of one or two choices: planner plan finds what does");
  }
  std::ranges::stable_sort(changes.fitting, {}, [](const FittingChange& change) {
    return merit(change.step_time, change.unusual);
  });
  return changes;
}

std::vector<std::string> flag_changes(const Job& job, const Framework& framework,
                                      const Strategy& from, const Strategy& to) {
  std::vector<std::string> changes;
  const FlagTable* table = flag_table_of(framework.name);
  if (table == nullptr) return changes;
  const auto before = by_option(flags_of(*table, fields_of(job, from, framework)));
  const auto after = by_option(flags_of(*table, fields_of(job, to, framework)));
  const auto with_words = [](const std::string& option, const std::string& words) {
    return words.empty() ? option : option + " " + words;
  };
  for (const auto& [option, words] : after) {
    const auto was = before.find(option);
    if (was == before.end()) {
      changes.push_back("add " + with_words(option, words));
    } else if (was->second != words) {
      changes.push_back(fmt::format("{} {} -> {}", option, was->second, words));
    }
  }
  for (const auto& [option, words] : before) {
    if (!after.contains(option)) changes.push_back("drop " + option);
  }
  return changes;
}

namespace {

/// Says what the step is, and what it is spent on.
std::string step_lines(const Target& target, const ExplainedStep& step) {
  return explain_line("layout", layout_text(target.job, target.framework(), step.strategy)) +
         explain_line("step",
                      step_words(step.prediction) + (step.fits ? "" : "; it does not fit")) +
         limits_text(step);
}

}  // namespace

std::string few_changes_brief(const Target& target, const ExplainedStep& step,
                              const FewChanges& found) {
  constexpr std::size_t kMostLines = 12;  // a headline and the commands come on top
  const std::string text = step_lines(target, step);
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
  std::string text =
      step_lines(target, step) + fmt::format("strategy    {}\n", strategy_summary(step.strategy));
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

Json few_changes_json(const Target& target, const ExplainedStep& step, const FewChanges& found) {
  const auto changes = [&](const std::vector<AssessedChange>& all) {
    Json json = Json::array();
    for (const AssessedChange& change : all) {
      json.push_back(change_json(change));
      json.back()["flags"] =
          flag_changes(target.job, target.framework(), step.strategy, change.strategy);
    }
    return json;
  };
  return {{"job", target.job.name},          {"devices", target.devices},
          {"step", step_json(step)},         {"one_choice_changed", changes(found.one.found)},
          {"one_is_best", found.one.proven}, {"two_choices_changed", changes(found.two.found)},
          {"two_is_best", found.two.proven}};
}

}  // namespace plimsoll
