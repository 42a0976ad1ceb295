// Why a space has no plan.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/parallel.h"
#include "planner/explore.h"
#include "planner/family_bounds.h"

namespace plimsoll {
namespace {

struct Need {
  std::size_t index = 0;
  Footprint footprint;
  Bytes bytes;         ///< with what no tensor shows
  bool of_all = true;  ///< false: the search was stopped before all were looked at
};

/// The strategy that needs least, and the first of equals. Buckets take no memory of their own, so
/// the first strategy of each arrangement stands for all of them. Where recomputed layers can be
/// counted, those that recompute most are looked at.
Need least_need(const SearchRequest& request, const CostModel& costs, const Space& space) {
  const Bounds bounds(request.job, request.framework, costs, request.devices);
  const FamilyBounds family_bounds(request.job, request.framework, bounds);
  const auto outside = [&](const Strategy& strategy) {
    return memory_outside_program(request.job, strategy, request.framework);
  };
  const std::span<const StrategyFamily> families = space.legal.families();
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] {
    if (request.stop && request.stop()) return true;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return request.time_limit && taken.count() > request.time_limit->value();
  };
  std::vector<std::pair<Bytes, std::size_t>> order(families.size());
  for_each_index(families.size(), request.threads, [&](std::size_t f) {
    order[f] = {family_bounds.least_reserved(families[f]) + outside(families[f].base), f};
  });
  std::sort(order.begin(), order.end());
  std::optional<Need> least;
  for (const auto& [family_bound, f] : order) {
    if (least && family_bound > least->bytes) break;
    if (least && passed()) {
      least->of_all = false;
      break;
    }
    const StrategyFamily& family = families[f];
    for (const ArrangementGroup& group : family.arrangements->groups) {
      const std::size_t arrangement = group.first + group.count - 1;
      const Strategy strategy = space.legal.of(family, arrangement, 0);
      if (least && bounds.memory(strategy).reserved + outside(strategy) > least->bytes) continue;
      Footprint footprint = lay_out(request.job, strategy, request.framework, costs.cluster(),
                                    request.reserve, Proof::none);
      const Bytes bytes = footprint.reserved + outside(strategy);
      const std::size_t index = family.first + arrangement * family.buckets;
      if (!least || std::pair(bytes, index) < std::pair(least->bytes, least->index)) {
        footprint.programs.clear();
        least = Need{index, std::move(footprint), bytes};
      }
    }
  }
  return std::move(*least);
}

}  // namespace

void refuse(const SearchRequest& request, const CostModel& costs, const Space& space) {
  const Need need = least_need(request, costs, space);
  const std::string who = strategy_summary(space.legal[need.index]);
  if (need.footprint.fits) {
    throw InfeasibleError(
        fmt::format("{} takes too long on {}: of {} legal strategies some fit ({}), but no "
                    "step of those is shorter than the {} that a plan's timeline can show",
                    request.job.name, devices_text(request.devices), space.legal.size(), who,
                    to_text(kLongestTimeline.seconds())));
  }
  const StagePrediction& tightest = tightest_of(need.footprint.stages);
  const Bytes outside = need.bytes - need.footprint.reserved;
  throw InfeasibleError(fmt::format(
      "{} does not fit on {}: of {} legal strategies {} that needs least ({}) "
      "still needs {} ({} bytes) on {}, with {} outside its tensors and {} of reserve, and a "
      "device has {} ({} bytes)",
      request.job.name, devices_text(request.devices), space.legal.size(),
      need.of_all ? "the one" : "the one of those looked at before the search was stopped", who,
      to_text(tightest.reserved), tightest.reserved.count(), name_of(tightest), to_text(outside),
      to_text(request.reserve), to_text(tightest.capacity), tightest.capacity.count()));
}

}  // namespace plimsoll
