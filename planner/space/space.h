// Space: the legal strategies of a job on some devices, in a fixed order.
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

namespace plimsoll {

/// The most devices of one request: more than any cluster has, and what a degree of a strategy may
/// be.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;

/// KEY=VALUE pairs from --fix, applied to every candidate.
using Fixed = std::vector<std::pair<std::string, std::string>>;
bool is_fixed(const Fixed& fixed, std::string_view key);

/// How a strategy lays the model over its pipeline, and how many layers of each chunk it
/// recomputes (0: all that are recomputed at all).
struct Arrangement {
  Schedule schedule = Schedule::one_f_one_b;
  std::int64_t virtual_stages = 1, embedding_as_layers = 0, loss_as_layers = 0;
  std::int64_t recompute_layers = 0;
  bool operator==(const Arrangement&) const = default;
};
void apply(const Arrangement& arrangement, Strategy& strategy);

/// Arrangements that differ in recompute_layers only, fewest first.
struct ArrangementGroup {
  std::size_t first = 0, count = 0;  ///< indices into Arrangements::all
  std::vector<std::int64_t> layers_per_part;
  std::int64_t most_layers = 0;  ///< of any part
};
/// The arrangements that strategies of one pipeline degree choose from.
struct Arrangements {
  std::vector<Arrangement> all;
  std::vector<ArrangementGroup> groups;
};

/// Strategies that differ in their arrangement and in gradient buckets only.
struct StrategyFamily {
  Strategy base;  ///< the first of them
  std::shared_ptr<const Arrangements> arrangements;
  std::size_t buckets = 1;  ///< sizes of the ladder; with 1 base has the only one
  std::size_t first = 0;    ///< index of `base` among all strategies
  std::size_t count() const { return arrangements->all.size() * buckets; }
};

/// A list of strategies that are made when they are asked for: a large space has tens of millions.
class StrategyList {
 public:
  void add(StrategyFamily family);  ///< sets its `first`
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

struct Space {
  StrategyList legal;           ///< canonical order: the order ties are broken by
  std::int64_t enumerated = 0;  ///< candidates before the rules
  std::vector<Pruned>
      rejected;        ///< by rule: reasons with their numbers replaced by N, first met first
  std::string reason;  ///< of the commonest rule, with the numbers of its first candidate
};

/// cp, mp, pp, dp, sharding degree and micro-batch: all divisors; sharding stages, recompute forms
/// and exchanges of cp that the framework has; recompute of any number of layers of a chunk; every
/// number of virtual stages, even or with the ends of the model counted as layers; tokens or
/// borders split over mp; ZB-H1; prefetch depths 0 to 2 and kept gathers in sharding stage 3;
/// gradient bucket bytes: a ladder where gradients cross ranks in buckets, else the default alone;
/// rank orders of the framework whose groups lie differently over `units`. not_searched() names
/// what is left out. Fields of `fixed` take only that value. Throws UsageError for devices outside
/// 1 to kMostDevices, an unknown key (naming the nearest) or a bad value.
Space enumerate(const Job& job, const Framework& framework, std::int64_t devices,
                const Fixed& fixed, const DeviceUnits& units = {});

/// The keys of a strategy that no search varies: --fix sets them.
std::vector<std::string_view> not_searched();
/// The keys that are chosen for single stages of 1F1B without virtual stages, beside the space
/// (layer_choices.h): elsewhere --fix sets them.
std::span<const std::string_view> chosen_by_stage();

/// The gradient bucket ladder of a job: 1 MiB to 64 MiB in steps of four, and on until one bucket
/// holds all gradients of the model or the largest, 1 GiB, is reached. Frameworks that reduce in
/// buckets use sizes in this range: PyTorch DDP 25 MB, Megatron-LM the larger of 40e6 elements and
/// 1e6 per replica (core/distributed/distributed_data_parallel_config.py).
std::vector<Bytes> grad_bucket_ladder(const Job& job);

/// How often each value of each choice is met among the legal strategies, in order of value.
struct Dimension {
  std::string key;
  std::vector<std::pair<std::string, std::int64_t>> values;
};
std::vector<Dimension> dimensions(const Space& space);

}  // namespace plimsoll
