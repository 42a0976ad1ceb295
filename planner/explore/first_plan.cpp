// Tries lean strategies, then usual ones, until one of each kind fits.
#include "planner/explore/first_plan.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>
#include <set>
#include <tuple>

#include "planner/explore/assess.h"

namespace plimsoll {
namespace {

constexpr std::size_t kTries = 64, kUsualTries = 64, kUsualPlans = 4;
constexpr std::int64_t kUsualMicroBatch = 2;

Bytes room_of(const FirstPlanRequest& request, const Strategy& strategy) {
  return room_for_program(request.target, strategy, largest_memory(request.target));
}

bool may_fit(const FirstPlanRequest& request, const Strategy& strategy) {
  return request.bounds.memory(strategy).reserved <= room_of(request, strategy);
}

std::optional<Candidate> try_plan(const FirstPlanRequest& request, const StrategyFamily& family,
                                  std::size_t arrangement) {
  Candidate found = assess(request.target, request.legal.of(family, arrangement, 0),
                           family.first + arrangement * family.buckets);
  confirm_memory(request.target, {&found, 1}, request.threads);
  if (!feasible(found)) return std::nullopt;
  return found;
}

/// Returns the index of the leanest family for each number of ranks that hold one copy of the
/// model, first without tried values, then with each combination of them.
std::vector<std::size_t> leanest_families(const StrategyList& legal, const Cluster& cluster) {
  std::vector<
      std::tuple<std::size_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::size_t>>
      order;
  const std::span<const StrategyFamily> families = legal.families();
  std::vector<Strategy> combinations;
  for (std::size_t f = 0; f < families.size(); ++f) {
    const Strategy& s = families[f].base;
    const Strategy others = beside_search(s);
    if (combinations.empty() || combinations.back() != others) combinations.push_back(others);
    if (s.recompute != Recompute::full && s.recompute != Recompute::none) continue;
    if (s.mp > cluster.devices_per_node || s.cp > 1) continue;
    order.emplace_back(combinations.size(), s.mp * s.pp,
                       s.micro_batch * 2 + (s.recompute == Recompute::none), -s.ep,
                       -s.sharding_degree * 4 - s.sharding_stage, f);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> leanest;
  std::pair<std::size_t, std::int64_t> before;
  for (const auto& [combination, ranks, batch, experts, sharded, f] : order) {
    if (std::pair(combination, ranks) != before) leanest.push_back(f);
    before = {combination, ranks};
  }
  return leanest;
}

std::optional<Candidate> leanest_plan(const FirstPlanRequest& request) {
  std::vector<std::size_t> order = leanest_families(request.legal, request.target.cluster());
  order.resize(std::min(order.size(), kTries));
  for (const std::size_t f : order) {
    if (request.passed()) break;
    const StrategyFamily& family = request.legal.families()[f];
    const ArrangementGroup& plain = family.arrangements->groups.front();
    const std::size_t all_recomputed = plain.first + plain.count - 1;
    if (!may_fit(request, request.legal.of(family, all_recomputed, 0))) continue;
    if (auto found = try_plan(request, family, all_recomputed)) return found;
  }
  return std::nullopt;
}

bool is_usual(const Strategy& s, const Cluster& cluster) {
  const bool recompute = s.recompute == Recompute::full || s.recompute == Recompute::none;
  const bool experts_whole = !experts_apart(s) || experts_tensor_parallel(s) == 1;
  const bool all_share = s.dp == 1 || s.sharding_degree == 1;
  return s.mp <= cluster.devices_per_node && std::has_single_bit(std::uint64_t(s.pp)) &&
         s.cp == 1 && recompute && experts_whole && all_share &&
         s.micro_batch <= kUsualMicroBatch && s.rank_order == Strategy().rank_order;
}

/// A usual family, one of its groups or the first arrangement of a group, in the order in which
/// they are looked at.
struct Usual {
  /// The bound is that of a family's work, of a group with its communication, or of an
  /// arrangement's actions.
  enum class Kind : std::uint8_t { family, group, arrangement };
  Picoseconds bound;
  std::size_t family = 0, arrangement = 0;
  Kind kind = Kind::family;
  auto operator<=>(const Usual&) const = default;
};

std::set<Usual> usual_families(const FirstPlanRequest& request) {
  std::set<Usual> plans;
  const std::span<const StrategyFamily> families = request.legal.families();
  for (std::size_t f = 0; f < families.size(); ++f) {
    if (!is_usual(families[f].base, request.target.cluster())) continue;
    if (request.passed()) break;
    const FamilySummary work =
        summary_of(request.families.work(families[f], room_of(request, families[f].base)));
    if (work.fits) plans.insert({work.step, f});
  }
  return plans;
}

void add_groups(const FirstPlanRequest& request, std::size_t f, std::set<Usual>& plans) {
  const StrategyFamily& family = request.legal.families()[f];
  const FamilyBound bound = request.families.of(family, room_of(request, family.base));
  for (const GroupBound& group : bound.groups)
    plans.insert({group.step, f, group.first, Usual::Kind::group});
}

/// Bounds the actions of the plan's pipeline; returns nothing where it does not fit.
std::optional<Usual> sharpened(const FirstPlanRequest& request, Usual plan) {
  const Strategy strategy =
      request.legal.of(request.legal.families()[plan.family], plan.arrangement, 0);
  if (!may_fit(request, strategy)) return std::nullopt;
  const Picoseconds own = capped([&] { return request.bounds.actions(strategy); });
  plan.bound = std::max(plan.bound, own);
  plan.kind = Usual::Kind::arrangement;
  return plan;
}

std::optional<Candidate> usual_plan(const FirstPlanRequest& request) {
  std::set<Usual> plans = usual_families(request);
  std::optional<Candidate> best;
  std::size_t found = 0;
  for (std::size_t tries = 0; tries < kUsualTries && !plans.empty() && !request.passed();) {
    const Usual plan = plans.extract(plans.begin()).value();
    if (best && plan.bound.seconds() >= best->prediction.step_time) break;
    if (plan.kind == Usual::Kind::family) {
      add_groups(request, plan.family, plans);
      continue;
    }
    if (plan.kind == Usual::Kind::group) {
      if (const auto sharp = sharpened(request, plan)) plans.insert(*sharp);
      continue;
    }
    ++tries;
    const StrategyFamily& family = request.legal.families()[plan.family];
    auto own = try_plan(request, family, plan.arrangement);
    if (!own) continue;
    if (!best || better(*own, *best)) best = std::move(own);
    if (++found == kUsualPlans) break;
  }
  return best;
}

}  // namespace

std::optional<Candidate> first_plan(const FirstPlanRequest& request) {
  std::optional<Candidate> lean = leanest_plan(request);
  if (!lean) return std::nullopt;
  std::optional<Candidate> usual = usual_plan(request);
  return usual && better(*usual, *lean) ? usual : lean;
}

}  // namespace plimsoll
