// Takes the fastest candidates one after the other, and simulates each with the switch.
#include "planner/search/exchanges_in_turns.h"

#include <algorithm>
#include <optional>

#include "base/parallel.h"
#include "planner/explore/assess.h"

namespace plimsoll {
namespace {

/// How many candidates are tried. Hiding exchanges gains some per cent, and the candidates of a
/// search lie closer together.
constexpr std::size_t kTried = 16;

constexpr std::string_view kKey = "overlap_expert_exchange";

bool is_free(const SearchRequest& request) {
  return !request.target.framework().can.overlap_expert_exchange.value.empty() &&
         !is_fixed(request.fixed, kKey) && !is_tried(request.tried, kKey);
}

/// A candidate of the search, and its strategy with the switch.
struct Change {
  const Candidate* from = nullptr;
  Strategy strategy;
};

/// Returns the strategy with the switch, and without the overlap of shared experts where the
/// framework has only one of the two. Returns nothing where that is not legal.
std::optional<Strategy> in_turns(const Target& target, const Strategy& strategy) {
  Strategy changed = strategy;
  changed.overlap_expert_exchange = true;
  for (const bool shared : {strategy.overlap_shared_experts, false}) {
    changed.overlap_shared_experts = shared;
    if (legal(target.job, changed, target.devices) &&
        legal(target.framework(), target.job, changed)) {
      return changed;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Candidate> exchanges_in_turns(const SearchRequest& request,
                                          std::span<const Candidate> candidates,
                                          std::size_t first_index) {
  const Target& target = request.target;
  if (!target.job.experts || !is_free(request)) return {};
  std::vector<Change> fastest;
  for (const Candidate& candidate : candidates) {
    if (!feasible(candidate)) continue;
    if (auto strategy = in_turns(target, candidate.strategy))
      fastest.push_back({&candidate, *std::move(strategy)});
  }
  std::sort(fastest.begin(), fastest.end(),
            [](const Change& a, const Change& b) { return better(*a.from, *b.from); });
  if (fastest.size() > kTried) fastest.resize(kTried);
  std::vector<Candidate> tried(fastest.size());
  for_each_index(fastest.size(), request.threads, [&](std::size_t i) {
    if (request.stop && request.stop()) return;
    tried[i] = assess(target, fastest[i].strategy, first_index + i);
    confirm_memory(target, {&tried[i], 1}, 1);
  });
  std::vector<Candidate> found;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    if (feasible(tried[i]) && tried[i].prediction.step_time < fastest[i].from->prediction.step_time)
      found.push_back(std::move(tried[i]));
  }
  return found;
}

}  // namespace plimsoll
