// Cuts families by cost and simulates the cuts that may be fastest.
#include "planner/layers/layer_choices.h"

#include <algorithm>
#include <array>

#include "base/parallel.h"
#include "models/job/layer_forms.h"
#include "planner/bounds/least_costs.h"
#include "planner/explore/assess.h"
#include "planner/layers/stage_costs.h"
#include "predict/memo.h"

namespace plimsoll {
namespace {

/// Live bytes of a cut may take this share of a device's room. Each share gives another cut.
constexpr std::array kShares = {1.0, 0.98, 0.95, 0.88};

/// Finds LastingLines once for all strategies that keep the same bytes between steps.
class LastingCache {
 public:
  explicit LastingCache(const Target& target) : target_(target) {}

  const LastingLines& of(const Strategy& strategy) {
    Strategy plain = without(strategy, FIELD(micro_batch), FIELD(recompute),
                             FIELD(recomputed.modules), FIELD(rank_order));
    plain.pp = std::min<std::int64_t>(strategy.pp, 3);
    return known_.of({plain}, [&] { return lasting_lines(context_of(target_, plain)); });
  }

 private:
  const Target& target_;
  Memo<LastingLines> known_;
};

/// Returns the even cut of a family over its pipeline, without virtual stages, if it has one.
std::optional<Strategy> even_pipeline(const Job& job, const StrategyFamily& family) {
  const auto& all = family.arrangements->all;
  const auto plain = std::find_if(all.begin(), all.end(), [](const Arrangement& a) {
    return a.schedule == Schedule::one_f_one_b && a.virtual_stages == 1;
  });
  if (plain == all.end() || family.base.pp == 1 || family.base.pp > total_layers(job) ||
      family.base.recompute == Recompute::per_op) {
    return std::nullopt;
  }
  Strategy even = family.base;
  apply(*plain, even);
  even.pipeline.embedding_as_layers = even.pipeline.loss_as_layers = 0;
  even.recomputed.layers = 0;
  return even;
}

/// Finds the cuts of one strategy.
class Cutter {
 public:
  Cutter(const SearchRequest& request, const LayerFreedom& freedom, const Strategy& even,
         const StageCosts& costs, LastingCache& lasting, Picoseconds limit)
      : request_(request),
        freedom_(freedom),
        even_(even),
        costs_(costs),
        lasting_cache_(lasting),
        limit_(limit),
        m_(micro_batches(request.target.job, even)),
        layers_(total_layers(request.target.job)) {
    const std::int64_t pp = even.pp;
    for (std::int64_t s = 0; s < pp; ++s)
      even_layers_.push_back(layers_ / pp + (s < layers_ % pp ? 1 : 0));
    for (std::int64_t s = 0; s < pp; ++s) {
      most_layers_.push_back(most_layers(s));
      most_in_all_ += most_layers_.back();
    }
  }

  /// Whether some cut is fast enough if memory does not count.
  bool may_be_fast() { return best({}, 0, 0, limit_).has_value(); }

  /// Returns the best cut whose stages need at most `room` bytes.
  std::optional<Strategy> cut(Bytes room) {
    if (even_.recompute == Recompute::none) return made(best(room, 0, 0, limit_), 0);
    // Whoever repeats modules without a list of layers repeats them in all.
    if (even_.recompute == Recompute::modules && !freedom_.by_stage)
      return made(best(room, layers_, layers_, limit_), 0);
    const auto free = best(room, 0, layers_, limit_);
    if (freedom_.by_stage || !free) return made(free, 0);
    // As many on every stage: none is faster than where each has as many as it needs.
    std::optional<LayerCut> least;
    std::int64_t recomputed = 0;
    // None at all is tried here, too: the family without recompute may not fit with an even cut.
    if (may_recompute_none()) least = best(room, 0, 0, limit_);
    const bool few = least || best(room, 1, 1, limit_);
    for (std::int64_t n = few ? 1 : fewest_that_fit(room); n <= layers_; ++n) {
      const Picoseconds limit = least ? least->step : limit_;
      if (!best({}, n, n, limit)) break;  // nor with more of them
      auto found = best(room, n, n, limit);
      if (found) least = std::move(found), recomputed = n;
    }
    return made(least, recomputed);
  }

 private:
  /// Returns the fewest layers from one on that all stages have to recompute to fit: one more than
  /// there are where none are enough. A layer more takes less memory and more time.
  std::int64_t fewest_that_fit(Bytes room) {
    const auto first = [&](std::int64_t from, std::int64_t to, const auto& holds) {
      while (from < to) {
        const std::int64_t middle = (from + to) / 2;
        if (holds(middle)) {
          to = middle;
        } else {
          from = middle + 1;
        }
      }
      return from;
    };
    const std::int64_t too_slow =
        first(1, layers_ + 1, [&](std::int64_t n) { return !best({}, n, n, limit_).has_value(); });
    if (too_slow == 1 || !best(room, too_slow - 1, too_slow - 1, limit_)) return layers_ + 1;
    return first(1, too_slow, [&](std::int64_t n) { return best(room, n, n, limit_).has_value(); });
  }

  /// Returns the best cut with a step below `limit` in which every stage recomputes from `fewest`
  /// to `most` of its layers, or all if it has fewer. Without `room` all stages fit.
  std::optional<LayerCut> best(std::optional<Bytes> room, std::int64_t fewest, std::int64_t most,
                               Picoseconds limit) {
    return best_cut({even_.pp, layers_, m_, limit}, [&](std::int64_t stage, std::int64_t layers) {
      const std::pair range(std::min(fewest, layers), std::min(most, layers));
      return options(stage, layers, range, room, limit);
    });
  }

  /// Returns the most layers that a stage can have in a step below the limit.
  std::int64_t most_layers(std::int64_t stage) const {
    std::int64_t most = 0;
    // Work is a straight line over the recomputed layers.
    while (most < layers_ && (is_below_limit(costs_.time(stage, most + 1, 0), limit_) ||
                              is_below_limit(costs_.time(stage, most + 1, most + 1), limit_)))
      ++most;
    return most;
  }

  bool is_below_limit(const StageOption& option, Picoseconds limit) const {
    return option.work.count() <= (limit.count() - 1) / m_;
  }

  /// Whether a strategy that recomputes may end up without recompute.
  bool may_recompute_none() const {
    Strategy none = even_;
    none.recompute = Recompute::none;
    none.recomputed.modules = {};
    return !is_fixed(request_.constraints.fixed, "recompute") &&
           is_within(request_.constraints.limits, none, "recompute");
  }

  bool may_have(std::int64_t stage, std::int64_t layers) const {
    const std::int64_t own = most_layers_[std::size_t(stage)];
    if (layers > own || layers_ - layers > most_in_all_ - own) return false;
    if (!freedom_.cuts) return layers == even_layers_[std::size_t(stage)];
    const bool end = stage == 0 || stage + 1 == even_.pp;
    return layers > 0 || (end && freedom_.empty_ends);
  }

  std::vector<StageOption> options(std::int64_t stage, std::int64_t layers,
                                   std::pair<std::int64_t, std::int64_t> recomputed,
                                   std::optional<Bytes> room, Picoseconds limit) {
    std::vector<StageOption> found;
    if (!may_have(stage, layers)) return found;
    for (std::int64_t r = recomputed.first; r <= recomputed.second; ++r) {
      const StageOption option = costs_.time(stage, layers, r);
      if (!is_below_limit(option, limit)) continue;
      const bool no_gain = !found.empty() && option.work >= found.back().work &&
                           option.passes >= found.back().passes &&
                           option.forward <= found.back().forward;
      if (no_gain) break;
      if (!room || memory(stage, layers, r) <= *room) found.push_back(option);
    }
    return found;
  }

  Bytes memory(std::int64_t stage, std::int64_t layers, std::int64_t recomputed) {
    const auto [known, added] = memory_.try_emplace(std::array{stage, layers, recomputed});
    if (!lasting_) lasting_ = lasting_cache_.of(even_);
    if (added) known->second = costs_.memory(*lasting_, stage, layers, recomputed);
    return known->second;
  }

  /// Returns the strategy of a cut. Every stage recomputes its `first` layers; with 0 the cut says
  /// which layers.
  std::optional<Strategy> made(const std::optional<LayerCut>& cut, std::int64_t first) const {
    if (!cut) return std::nullopt;
    Strategy strategy = even_;
    std::int64_t most = 0, again = 0, before = 0;
    for (const StageChoice& stage : cut->stages) {
      strategy.pipeline.layer_split.push_back(stage.layers);
      for (std::int64_t r = 0; r < stage.recomputed; ++r)
        strategy.recomputed.list.push_back(before + r);
      before += stage.layers;
      again += stage.recomputed;
      most = std::max(most, stage.layers);
    }
    if (strategy.pipeline.layer_split == even_layers_) strategy.pipeline.layer_split.clear();
    if (again == 0 && even_.recompute != Recompute::none && !may_recompute_none())
      return std::nullopt;
    if (again == 0) strategy.recompute = Recompute::none, strategy.recomputed.modules = {};
    if (again == layers_ || first > 0) strategy.recomputed.list.clear();
    if (first < most) strategy.recomputed.layers = first;
    return strategy;
  }

  const SearchRequest& request_;
  const LayerFreedom& freedom_;
  const Strategy& even_;
  const StageCosts& costs_;
  LastingCache& lasting_cache_;
  std::optional<LastingLines> lasting_;  ///< once it is asked for
  const Picoseconds limit_;
  const std::int64_t m_, layers_;
  std::vector<std::int64_t> even_layers_, most_layers_;  ///< by stage
  std::int64_t most_in_all_ = 0;                         ///< layers on all stages
  std::map<std::array<std::int64_t, 3>, Bytes> memory_;
};

/// Whether the space has the strategy, in this family or in the one that recomputes nothing.
bool in_space(const Job& job, const StrategyFamily& family, const Strategy& strategy) {
  if (!strategy.recomputed.list.empty()) return false;
  const std::vector<std::int64_t> layers = layers_per_part(job, strategy);
  return std::ranges::any_of(family.arrangements->groups, [&](const ArrangementGroup& group) {
    const Arrangement& first = family.arrangements->all[group.first];
    return first.schedule == Schedule::one_f_one_b && first.virtual_stages == 1 &&
           std::ranges::equal(group.parts, layers, {}, &LayerRange::count);
  });
}

/// A family's cuts, the best one first, then those for less memory.
struct Cuts {
  std::size_t family = 0;
  std::vector<Strategy> strategies;
  std::vector<Picoseconds> bounds;
};

class LayerSearch {
 public:
  LayerSearch(const SearchRequest& request, const Space& space, const Bounds& bounds,
              const BestSoFar& best)
      : request_(request),
        target_(request.target),
        space_(space),
        bounds_(bounds),
        freedom_(layer_freedom(target_.framework(), request.constraints.fixed,
                               request.constraints.limits)),
        shape_costs_(target_),
        handicaps_(request),
        lasting_(target_),
        capacity_(largest_memory(target_)),
        best_(best) {}

  std::vector<Candidate> run(std::span<const std::size_t> families) {
    if (target_.costs->device_kinds() > 1) return {};  // costs of stages are of the fastest devices
    if (layers_differ(target_.job) || (!freedom_.cuts && !freedom_.by_stage)) return {};
    std::vector<Cuts> all(families.size());
    for_each_index(families.size(), request_.threads, [&](std::size_t i) {
      if (!stopped()) all[i] = cuts_of(families[i]);
    });
    std::erase_if(all, [](const Cuts& cuts) { return cuts.strategies.empty(); });
    std::stable_sort(all.begin(), all.end(), [](const Cuts& a, const Cuts& b) {
      return a.bounds.front() < b.bounds.front();
    });
    for (const Cuts& cuts : all) simulate(cuts);
    return std::move(found_);
  }

 private:
  bool stopped() const { return request_.stop && request_.stop(); }

  /// Returns the step time below which a cut with these unusual choices is better or faster than
  /// all before.
  Seconds limit_of(std::span<const Unusual> choices) const {
    return std::max(best_.fastest, best_.merit / handicap(choices));
  }
  Seconds limit_of(const Strategy& cut) const { return limit_of(handicaps_.of(cut, Bytes())); }
  /// Returns that of any cut of the strategy: some may share layers as evenly as is usual.
  Seconds limit_of_cuts(const Strategy& even) const {
    std::vector<Unusual> choices = handicaps_.of(even, Bytes());
    std::erase_if(choices,
                  [](const Unusual& one) { return one.choice == UnusualChoice::uneven_layers; });
    return limit_of(choices);
  }

  Cuts cuts_of(std::size_t f) {
    Cuts cuts{f, {}, {}};
    const StrategyFamily& family = space_.legal.families()[f];
    const std::optional<Strategy> even = even_pipeline(target_.job, family);
    if (!even || classes_by_owner(*even)) return cuts;
    const bool repeats = even->recompute != Recompute::none;
    if (!freedom_.cuts && !repeats) return cuts;
    try {
      const auto work =
          is_long_ring(target_.framework(), *even) ? bounds_.ring_work(*even) : bounds_.work(*even);
      const Picoseconds limit = to_picoseconds(limit_of_cuts(*even));
      if (!layers_are_alike(*work) ||
          least_of_any_cut(target_.job, *work, even->pp, micro_batches(target_.job, *even)) >=
              limit) {
        return cuts;
      }
      find_cuts(family, *even, bounds_.facts(*even), limit, cuts);
    } catch (const InfeasibleError&) {  // longer than the clock holds
    }
    return cuts;
  }

  void find_cuts(const StrategyFamily& family, const Strategy& even,
                 const std::shared_ptr<const MicroBatchFacts>& facts, Picoseconds limit,
                 Cuts& cuts) {
    const StageCosts costs(target_, even, facts, shape_costs_.of(even));
    Cutter cutter(request_, freedom_, even, costs, lasting_, limit);
    if (!cutter.may_be_fast()) return;
    const Bytes room = room_for_program(target_, even, capacity_);
    for (const double share : kShares) {
      const std::optional<Strategy> cut =
          cutter.cut(Bytes(std::int64_t(share * double(room.count()))));
      if (!cut || in_space(target_.job, family, *cut) || !legal(target_, *cut)) continue;
      if (!cuts.strategies.empty() && cuts.strategies.back() == *cut) continue;
      const Picoseconds bound = bounds_.bottleneck(*cut);
      if (bound >= limit) continue;
      cuts.strategies.push_back(*cut);
      cuts.bounds.push_back(bound);
    }
  }

  void simulate(const Cuts& cuts) {
    const StrategyFamily& family = space_.legal.families()[cuts.family];
    for (std::size_t i = 0; i < cuts.strategies.size(); ++i) {
      if (stopped()) return;
      const Strategy& cut = cuts.strategies[i];
      if (cuts.bounds[i].seconds() < limit_of(cut)) simulate(family, cut);
    }
  }

  /// Simulates a cut with every size of gradient buckets.
  void simulate(const StrategyFamily& family, const Strategy& cut) {
    std::vector<Strategy> strategies;
    for (std::size_t b = 0; b < family.buckets; ++b) {
      strategies.push_back(cut);
      if (family.buckets > 1) strategies.back().gradients.bucket_bytes = space_.legal.ladder()[b];
    }
    const auto is_too_slow = [&](Picoseconds bound) { return bound.seconds() >= limit_of(cut); };
    if (is_too_slow(capped([&] { return bounds_.actions(cut, is_too_slow); }))) return;
    for (const std::size_t b : bounds_.with_own_programs(strategies)) {
      if (stopped()) break;
      const auto is_fast = [&](const Candidate& candidate) {
        return candidate.prediction.step_time < limit_of(cut);
      };
      Candidate candidate =
          assess(target_, strategies[b], space_.legal.size() + found_.size(), is_fast);
      if (!feasible(candidate) || !is_fast(candidate)) continue;
      const Seconds step = candidate.prediction.step_time;
      confirm_memory(target_, {&candidate, 1}, request_.threads);
      handicaps_.weigh(candidate);
      if (!feasible(candidate)) continue;
      if (step >= best_.fastest && merit(candidate) >= best_.merit) continue;
      best_ = {std::min(best_.merit, merit(candidate)), std::min(best_.fastest, step)};
      found_.push_back(std::move(candidate));
    }
  }

  const SearchRequest& request_;
  const Target& target_;
  const Space& space_;
  const Bounds& bounds_;
  const LayerFreedom freedom_;
  const ShapeCosts shape_costs_;
  const Handicaps handicaps_;
  LastingCache lasting_;
  const Bytes capacity_;
  BestSoFar best_;
  std::vector<Candidate> found_;
};

}  // namespace

LayerFreedom layer_freedom(const Framework& framework, const Fixed& fixed, const Limits& limits) {
  for (const std::string_view key : {"layer_split", "embedding_as_layers", "loss_as_layers",
                                     "recompute_layers", "recompute_list"}) {
    if (is_fixed(fixed, key) || is_limited(limits, key)) return {};
  }
  const Capabilities& can = framework.can;
  return {can.pipelines.uneven_split.value, can.repeats.layers.value.has(RecomputedLayers::listed),
          can.pipelines.empty_parts.value};
}

std::vector<Candidate> layer_choices(const SearchRequest& request, const Space& space,
                                     const Bounds& bounds, std::span<const std::size_t> families,
                                     const BestSoFar& best) {
  return LayerSearch(request, space, bounds, best).run(families);
}

}  // namespace plimsoll
