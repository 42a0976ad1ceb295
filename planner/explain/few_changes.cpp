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

}  // namespace plimsoll
