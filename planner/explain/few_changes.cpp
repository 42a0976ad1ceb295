// Looks for the one or two changes of a strategy that shorten its step most.
#include "planner/explain/few_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "interop/flags/framework_flags.h"
#include "planner/explain/likely_changes.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

struct Fastest {
  std::vector<AssessedChange> found;
  bool proven = true;
};

/// Removes changes of choices that an earlier one changes, too, to other values.
void keep_best_of_each_choice(std::vector<AssessedChange>& changes) {
  std::set<std::set<std::string>> known;
  std::erase_if(changes, [&](const AssessedChange& change) {
    std::set<std::string> keys;
    for (const auto& [key, value] : change.change) keys.insert(key);
    return !known.insert(std::move(keys)).second;
  });
}

/// Assesses changes, least bound first, until no other can be among the fastest that are named.
Fastest fastest(const ExplainRequest& request, const Bounds& bounds,
                const std::vector<Fixed>& changes, const PlanTime& own, Seconds below) {
  Fastest result;
  const std::vector<LikelyChange> order =
      likely_changes(request, bounds, request.strategy, changes);
  const std::size_t most = std::min(order.size(), kMostAssessedChanges);
  for (std::size_t i = 0; i < order.size(); i += kAssessedAtOnce) {
    const Seconds best = result.found.empty() ? below : merit(result.found.front());
    const Seconds least = order[i].least_time.seconds();
    if (least >= below) break;
    if (result.found.size() >= kMostFewChanges && least >= merit(result.found.back())) break;
    if (i >= kMostAssessedChanges) {
      result.proven = least >= best;
      break;
    }
    std::vector<Fixed> round;
    for (std::size_t k = i; k < std::min(order.size(), i + kAssessedAtOnce); ++k)
      round.push_back(order[k].change);
    std::vector<AssessedChange> assessed;
    try {
      assessed = assess_changes(request, request.strategy, round, own, i, most);
    } catch (const NothingFoundYet&) {  // asked to stop; earlier rounds stand
      result.proven = false;
      break;
    }
    for (AssessedChange& change : assessed) {
      if (change.outcome == ChangeOutcome::runs && merit(change) < below)
        result.found.push_back(std::move(change));
    }
    best_first(result.found);
    keep_best_of_each_choice(result.found);
    if (result.found.size() > kMostFewChanges) result.found.resize(kMostFewChanges);
  }
  return result;
}

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
  const std::vector<Fixed> singles = single_choices(request.target, request.strategy, Reach::all);
  constexpr double kLess = 1 - kLeastGain;
  Fastest one = fastest(request, bounds, singles, own, kLess * own.step_time);
  const Seconds best = one.found.empty() ? own.step_time : merit(one.found.front());
  Fastest two = fastest(request, bounds, pairs_of(singles, singles), own, kLess * best);
  return {std::move(one.found), std::move(two.found), one.proven, two.proven};
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
