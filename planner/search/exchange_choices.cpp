// Takes the fastest candidates one after the other, and simulates each with the change.
#include "planner/search/exchange_choices.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/parallel.h"
#include "planner/explore/assess.h"

namespace plimsoll {
namespace {

/// How many candidates are tried with each change. A change gains some per cent, and the candidates
/// of a search lie closer together.
constexpr std::size_t kTried = 16;

/// A candidate of the search, and its strategy with the change.
struct Change {
  const Candidate* from = nullptr;
  Strategy strategy;
};

bool is_free(const SearchRequest& request, std::string_view key) {
  return !is_fixed(request.constraints.fixed, key) && !is_tried(request.constraints.tried, key);
}

bool is_legal(const Target& target, const Strategy& strategy) {
  return legal(target.job, strategy, target.devices) &&
         legal(target.framework(), target.job, strategy);
}

/// Returns whether the user left it open that shared experts compute otherwise than before.
bool may_change_shared(const SearchRequest& request, const Strategy& before,
                       const Strategy& changed) {
  constexpr std::string_view kKey = "overlap_shared_experts";
  if (before.experts.overlap_shared == changed.experts.overlap_shared) return true;
  return !is_fixed(request.constraints.fixed, kKey) &&
         is_within(request.constraints.limits, changed, kKey);
}

/// Returns the strategy with a forward and a backward in turns, and without the overlap of shared
/// experts where the framework has only one of the two. Returns nothing where that is not legal.
std::optional<Strategy> in_turns(const SearchRequest& request, const Strategy& strategy) {
  if (!is_free(request, "overlap_expert_exchange")) return std::nullopt;
  Strategy changed = strategy;
  changed.experts.overlap_exchange = true;
  if (!is_within(request.constraints.limits, changed, "overlap_expert_exchange"))
    return std::nullopt;
  for (const bool shared : {strategy.experts.overlap_shared, false}) {
    changed.experts.overlap_shared = shared;
    if (may_change_shared(request, strategy, changed) && is_legal(request.target, changed))
      return changed;
  }
  return std::nullopt;
}

/// Returns the strategy with all tokens gathered, where it sends rows and that is legal.
std::optional<Strategy> gathered(const SearchRequest& request, const Strategy& strategy) {
  const bool sends = strategy.ep > 1 && strategy.experts.dispatch == ExpertDispatch::all_to_all;
  if (!sends || !is_free(request, "expert_dispatch")) return std::nullopt;
  Strategy changed = strategy;
  changed.experts.dispatch = ExpertDispatch::all_gather;
  changed.experts.overlap_shared = false;  // gains nothing there
  if (!is_within(request.constraints.limits, changed, "expert_dispatch")) return std::nullopt;
  if (!may_change_shared(request, strategy, changed)) return std::nullopt;
  return is_legal(request.target, changed) ? std::optional(changed) : std::nullopt;
}

using ChangeOf = std::optional<Strategy> (*)(const SearchRequest&, const Strategy&);

bool same_but_buckets(Strategy a, const Strategy& b) {
  a.gradients.bucket_bytes = b.gradients.bucket_bytes;
  return a == b;
}

/// Appends the change of the fastest candidates for which there is one. Candidates that differ only
/// in gradient buckets count once, since a search simulates as many of them as its bounds leave.
void add_fastest(const SearchRequest& request, std::span<const Candidate> candidates,
                 ChangeOf change, std::vector<Change>& all) {
  std::vector<Change> fastest;
  for (const Candidate& candidate : candidates) {
    if (!feasible(candidate)) continue;
    if (auto strategy = change(request, candidate.strategy))
      fastest.push_back({&candidate, *std::move(strategy)});
  }
  std::sort(fastest.begin(), fastest.end(),
            [](const Change& a, const Change& b) { return better(*a.from, *b.from); });
  std::vector<Change> tried;
  for (Change& one : fastest) {
    if (tried.size() == kTried) break;
    if (std::ranges::none_of(tried, [&](const Change& other) {
          return same_but_buckets(one.strategy, other.strategy);
        }))
      tried.push_back(std::move(one));
  }
  std::ranges::move(tried, std::back_inserter(all));
}

}  // namespace

std::vector<Candidate> exchange_choices(const SearchRequest& request,
                                        std::span<const Candidate> candidates,
                                        std::size_t first_index) {
  const Target& target = request.target;
  if (!target.job.experts) return {};
  std::vector<Change> changes;
  for (const ChangeOf change : {&in_turns, &gathered})
    add_fastest(request, candidates, change, changes);
  std::vector<Candidate> tried(changes.size());
  for_each_index(changes.size(), request.threads, [&](std::size_t i) {
    if (request.stop && request.stop()) return;
    const auto gains = [&](const Candidate& candidate) {
      return candidate.prediction.step_time < changes[i].from->prediction.step_time;
    };
    Candidate candidate = assess(target, changes[i].strategy, first_index + i, gains);
    if (!feasible(candidate) || !gains(candidate)) return;
    confirm_memory(target, {&candidate, 1}, 1);
    tried[i] = std::move(candidate);
  });
  std::erase_if(tried, [](const Candidate& candidate) { return !feasible(candidate); });
  return tried;
}

}  // namespace plimsoll
