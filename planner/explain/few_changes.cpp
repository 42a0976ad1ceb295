// Looks for the one or two changes of a strategy that shorten its step most, or let it fit.
#include "planner/explain/few_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
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
  std::vector<Fixed> mixed = pairs_of(of_asked, of_others);
  std::ranges::move(pairs_of(of_asked, of_asked), std::back_inserter(mixed));
  const Bounds bounds(request.target);
  for (const auto& [changes, choices, keeps_asked] : {std::tuple(of_others, std::size_t{1}, true),
                                                      {pairs_of(of_others, of_others), 2, true},
                                                      {of_asked, 1, false},
                                                      {mixed, 2, false}}) {
    std::vector<AssessedChange> found =
        fastest(request, bounds, changed, changes, plan, {kMostLeastChanges}).found;
    if (!found.empty()) return {std::move(found), choices, keeps_asked};
  }
  return {};
}

FoundChanges changes_to_fit(const ExplainRequest& request, const PlanTime& own) {
  const Bounds bounds(request.target);
  const std::vector<Fixed> singles = neighbours(request.target, request.strategy, Reach::to_fit);
  FoundChanges changes;
  const auto find = [&](const std::vector<Fixed>& all, bool each_kind) {
    std::map<ChangeKind, std::vector<Fixed>> by_kind;
    for (const Fixed& change : all) by_kind[kind_of(change)].push_back(change);
    for (const auto& [kind, of_kind] : by_kind) {
      if (!each_kind && !changes.fitting.empty()) return;
      for (const AssessedChange& one :
           fastest(request, bounds, request.strategy, of_kind, own, {kMostLeastChanges, {}, true})
               .found) {
        changes.fitting.push_back(
            {kind, "with " + fields_text(differing_fields(one.strategy, request.strategy)),
             one.strategy, one.need, one.step_time});
      }
    }
  };
  find(singles, true);
  if (changes.fitting.empty()) find(pairs_of(singles, singles), false);
  if (changes.fitting.empty())
    changes.notes.emplace_back("no change of one or two choices: planner plan finds what does");
  std::ranges::stable_sort(changes.fitting, {}, &FittingChange::step_time);
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
