// Visits strategies in the order of their memory bounds.
#include "planner/refusal/leanest.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/parallel.h"
#include "planner/explore/family_bounds.h"

namespace plimsoll {
namespace {

/// Families whose leanest strategies are looked at before all are bounded.
constexpr std::size_t kFirst = 16;
/// The work of a family's first bounds where layers have experts: DeepSeek-V3 on 64 devices.
constexpr std::int64_t kLayersWithExperts = 50;

class Visitor {
 public:
  Visitor(const SearchRequest& request, const Space& space, const LeanestVisit& visit)
      : request_(request),
        legal_(space.legal),
        bounds_(request.target),
        family_bounds_(request.target, bounds_),
        visit_(visit) {
    const bool alike = request.target.cluster().other_devices.empty();
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, RankOrder> orders;
    for (std::size_t f = 0; f < legal_.families().size(); ++f) {
      const Strategy& s = legal_.families()[f].base;
      const auto first = orders.try_emplace({s.cp, s.mp, s.pp, s.dp}, s.rank_order).first->second;
      if (s.rank_order == first || !alike) families_.push_back(f);
    }
  }

  bool run() {
    look_at_first();
    if (goes_on_) look_at_all();
    return !passed_;
  }

 private:
  struct Bounded {
    Bytes bytes;
    std::size_t family = 0;
    std::vector<GroupBound> groups;
  };

  Bytes outside(const StrategyFamily& family) const {
    return outside_program(request_.target, family.base);
  }

  bool ends(std::int64_t work) {
    if (goes_on_ && visit_.passed(work)) {
      passed_ = true;
      goes_on_ = false;
    }
    return !goes_on_;
  }

  void look(const StrategyFamily& family, std::size_t arrangement) {
    const Strategy strategy = legal_.of(family, arrangement, 0);
    if (bounds_.memory(strategy).reserved + outside(family) > visit_.limit()) return;
    // A look lowers about as many micro-batches as stages, and a ring has a round for each rank.
    if (ends(request_.target.job.layers * strategy.pp * strategy.cp)) return;
    goes_on_ = visit_.look(strategy, family.first + arrangement * family.buckets);
  }

  static std::size_t leanest_of(const ArrangementGroup& group) {
    return group.first + group.count - 1;
  }

  void look_at_first() {
    std::int64_t micro_batch = 0;
    bool repeats = false;
    for (const std::size_t f : families_) {
      const Strategy& base = legal_.families()[f].base;
      if (micro_batch == 0 || base.micro_batch < micro_batch) micro_batch = base.micro_batch;
      repeats = repeats || base.recompute == Recompute::full;
    }
    std::vector<std::size_t> lean;
    for (const std::size_t f : families_) {
      const Strategy& base = legal_.families()[f].base;
      const bool usual = !repeats || base.recompute == Recompute::full;
      // Long rings take long to lower.
      if (base.micro_batch == micro_batch && usual &&
          !is_long_ring(request_.target.framework(), base))
        lean.push_back(f);
    }
    struct First {
      bool across_nodes = false;  ///< split tensors cost most there
      Bytes bytes;
      std::size_t family = 0;
      auto operator<=>(const First&) const = default;
    };
    // The first bounds lower layers; those with experts differ in more of a strategy's choices.
    const std::int64_t work = request_.target.job.experts ? kLayersWithExperts : 1;
    if (ends(work * std::int64_t(lean.size()))) return;
    std::vector<First> order(lean.size());
    for_each_index(lean.size(), request_.threads, [&](std::size_t i) {
      if (visit_.passed(0)) return;
      const StrategyFamily& family = legal_.families()[lean[i]];
      order[i] = {family.base.mp > request_.target.cluster().devices_per_node,
                  family_bounds_.least_reserved(family) + outside(family), lean[i]};
    });
    std::ranges::sort(order);
    order.resize(std::min(order.size(), kFirst));
    const auto arrangement_of = [&](const First& first) {
      return leanest_of(legal_.families()[first.family].arrangements->groups.front());
    };
    for (First& first : order) {
      if (ends(1)) return;
      if (first.bytes > visit_.limit()) continue;
      const StrategyFamily& family = legal_.families()[first.family];
      const Strategy strategy = legal_.of(family, arrangement_of(first), 0);
      first.bytes = bounds_.memory(strategy).reserved + outside(family);
    }
    std::ranges::sort(order);
    for (const First& first : order) {
      if (ends(1)) return;
      if (first.bytes <= visit_.limit())
        look(legal_.families()[first.family], arrangement_of(first));
    }
  }

  std::optional<Bounded> bounded(std::size_t f, Bytes limit) const {
    const StrategyFamily& family = legal_.families()[f];
    const Bytes room = std::max(limit - outside(family), Bytes());
    FamilyBound bound = family_bounds_.takes_long(family) ? family_bounds_.coarse(family, room)
                                                          : family_bounds_.of(family, room);
    if (bound.groups.empty()) return std::nullopt;
    return Bounded{summary_of(bound).peak + outside(family), f, std::move(bound.groups)};
  }

  void look_at_all() {
    if (ends(work_of_families(families_.size()))) return;
    const Bytes limit = visit_.limit();
    std::vector<std::optional<Bounded>> all(families_.size());
    std::vector<char> done(families_.size(), false);
    for_each_index(families_.size(), request_.threads, [&](std::size_t i) {
      if (visit_.passed(0)) return;
      all[i] = bounded(families_[i], limit);
      done[i] = true;
    });
    std::vector<const Bounded*> order;
    for (const auto& found : all) {
      if (found) order.push_back(&*found);
    }
    std::ranges::sort(order, [](const Bounded* a, const Bounded* b) {
      return std::pair(a->bytes, a->family) < std::pair(b->bytes, b->family);
    });
    for (const Bounded* found : order) {
      for (const GroupBound& group : found->groups) {
        if (ends(1)) return;
        look(legal_.families()[found->family], group.last - 1);
      }
    }
    if (std::ranges::find(done, char(false)) != done.end()) passed_ = true;
  }

  const SearchRequest& request_;
  const StrategyList& legal_;
  const Bounds bounds_;
  const FamilyBounds family_bounds_;
  const LeanestVisit& visit_;
  std::vector<std::size_t> families_;  ///< in one rank order, if devices are alike
  bool goes_on_ = true, passed_ = false;
};

}  // namespace

std::int64_t work_of_families(std::size_t families) { return std::int64_t(families / 8); }

bool visit_leanest(const SearchRequest& request, const Space& space, const LeanestVisit& visit) {
  return Visitor(request, space, visit).run();
}

}  // namespace plimsoll
