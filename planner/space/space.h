// Space: lists the legal strategies of a job on some devices, in a fixed order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/rank_orders.h"
#include "passes/strategy/strategy.h"
#include "plan/plan.h"
#include "planner/space/limits.h"
#include "planner/space/tried.h"

namespace plimsoll {

/// The most devices of one request, and the largest degree of a strategy. No cluster has more.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;

/// How a strategy lays the model over its pipeline, and how many layers of each chunk are
/// recomputed (0: all of them, if any).
struct Arrangement {
  Schedule schedule = Schedule::one_f_one_b;
  std::int64_t virtual_stages = 1, embedding_as_layers = 0, loss_as_layers = 0;
  std::int64_t recompute_layers = 0;
  std::vector<std::int64_t> layer_split = {};
  bool operator==(const Arrangement&) const = default;
};
void apply(const Arrangement& arrangement, Strategy& strategy);

/// Layers [first, last) of a model, those of one part of the pipeline.
struct LayerRange {
  std::int64_t first = 0, last = 0;
  std::int64_t count() const { return last - first; }
};

/// Arrangements that differ in recompute_layers only, fewest first.
struct ArrangementGroup {
  std::size_t first = 0, count = 0;  ///< indices into Arrangements::all
  std::vector<LayerRange> parts;
  std::vector<std::vector<LayerRange>> stages;  ///< the parts by stage
  std::int64_t most_layers = 0;                 ///< of any part
};
/// The arrangements that strategies of one pipeline degree choose from.
struct Arrangements {
  std::vector<Arrangement> all;
  std::vector<ArrangementGroup> groups;
};

/// Strategies that differ in their arrangement and in gradient buckets only.
struct StrategyFamily {
  Strategy base;  ///< the first strategy
  std::shared_ptr<const Arrangements> arrangements;
  std::size_t buckets = 1;  ///< sizes of the ladder; with 1 the size is that of base
  std::size_t first = 0;    ///< index of `base` among all strategies
  std::size_t count() const { return arrangements->all.size() * buckets; }
};

/// A list of strategies. Each is made when it is asked for, since a large space has tens of
/// millions.
class StrategyList {
 public:
  void add(StrategyFamily family);  ///< sets the family's `first`
  void set_ladder(std::vector<Bytes> ladder) { ladder_ = std::move(ladder); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Strategy operator[](std::size_t index) const;
  Strategy of(const StrategyFamily& family, std::size_t arrangement, std::size_t bucket) const;
  std::span<const StrategyFamily> families() const { return families_; }
  std::span<const Bytes> ladder() const { return ladder_; }

  class Iterator {
   public:
    Iterator(const StrategyList& list, std::size_t index) : list_(&list), index_(index) {}
    Strategy operator*() const { return (*list_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const StrategyList* list_;
    std::size_t index_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size_}; }

 private:
  std::vector<StrategyFamily> families_;
  std::vector<Bytes> ladder_;
  std::size_t size_ = 0;
};

/// The candidates of a job.
struct Space {
  StrategyList legal;           ///< in canonical order, which breaks ties
  std::int64_t enumerated = 0;  ///< candidates before the rules
  std::vector<Pruned>
      rejected;        ///< by rule, in order of discovery; N stands for the numbers in a reason
  std::string reason;  ///< the commonest, with the numbers of its first candidate
};

/// Returns all legal strategies that vary these choices:
///
///   - cp, mp, pp, dp, sharding degree and micro-batch, over all divisors;
///   - how experts are shared out (expert_splits.h);
///   - sharding stages, recompute forms and exchanges of cp that the framework has;
///   - the number of layers of a chunk that are recomputed;
///   - the number of virtual stages, with an even cut or with the model's ends counted as layers;
///   - cuts by the rates of stages' devices, without virtual stages, where these differ;
///   - tokens or borders split over mp;
///   - the schedule ZB-H1;
///   - prefetch depths 0 to 2 and kept gathers, in sharding stage 3;
///   - gradient bucket bytes, over a ladder where gradients cross ranks in buckets;
///   - rank orders of the framework whose groups lie differently over `units`.
///
/// not_searched() names all other choices. A field of `fixed` has that value only, and values
/// outside `limits` are no candidates. With `tried`, strategies with its values follow those
/// without them, where the values have an effect. Where fixed values, limits and tried values
/// contradict each other, there are no candidates at all. Throws UsageError for devices outside 1
/// to kMostDevices, an unknown key (naming the nearest) or a bad value.
Space enumerate(const Job& job, const Framework& framework, std::int64_t devices,
                const Fixed& fixed, const DeviceUnits& units = {}, const Limits& limits = {},
                const Tried& tried = {});

/// Returns the keys of a strategy that no search varies by itself. --fix and --try set them.
std::vector<std::string_view> not_searched();
/// Returns the usual strategy with the values that this one has of these keys. Strategies of one
/// search without --try have the same.
Strategy beside_search(const Strategy& strategy);
/// Returns the keys that layer_choices.h chooses beside the space, stage by stage, for 1F1B without
/// virtual stages. For other pipelines only --fix sets them.
std::span<const std::string_view> chosen_by_stage();

/// Returns the gradient bucket sizes of a job: 1 MiB to 64 MiB in steps of four, then on until one
/// bucket holds all gradients of the model, at most 1 GiB. Frameworks that reduce in buckets use
/// sizes in this range. PyTorch DDP has 25 MB, and Megatron-LM the larger of 40e6 elements and 1e6
/// per replica (core/distributed/distributed_data_parallel_config.py).
std::vector<Bytes> grad_bucket_ladder(const Job& job);

/// How many legal strategies have each value of a choice, in order of value.
struct Dimension {
  std::string key;
  std::vector<std::pair<std::string, std::int64_t>> values;
};
std::vector<Dimension> dimensions(const Space& space);

}  // namespace plimsoll
