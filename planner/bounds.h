// Bounds: admissible lower bounds of what `evaluate` would find for a strategy, without lowering
// all of it. Each is at most the evaluated value, for every strategy, framework and device kind;
// from cheap to sharp, with what each depends on:
//
//   persistent   degrees                        bytes that live between steps
//   memory       + micro-batch, recompute       and what micro-batches in flight keep
//   bottleneck   + micro-batch, recompute       time of the slowest stage between fill and drain
//   pipeline     + gradient bucket bytes        time of the order by whole actions, and the tail
//
// memory_bound.h and time_bound.h say why each holds. They follow the order of every schedule.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "planner/memory_bound.h"
#include "planner/time_bound.h"

namespace plimsoll {

/// Of one job on one cluster. Safe to share between threads. The strategies must be legal. Time
/// bounds throw InfeasibleError where they exceed what the clock holds (106 days).
class Bounds {
 public:
  Bounds(const Job& job, const Framework& framework, const CostModel& costs, std::int64_t devices);

  /// Of the heaviest stage; a bound of peak and arena alike.
  Bytes persistent(const Strategy& strategy) const;
  MemoryBound memory(const Strategy& strategy) const;
  Picoseconds bottleneck(const Strategy& strategy) const;
  Picoseconds pipeline(const Strategy& strategy) const;
  /// Buckets of every stage, in a form that is equal exactly where Programs of strategies that
  /// differ in grad_bucket_bytes only are equal.
  std::vector<std::int64_t> bucket_layout(const Strategy& strategy) const;

 private:
  using Persistent = std::vector<Bytes>;  ///< by stage
  std::shared_ptr<const Persistent> degrees(const Strategy& strategy) const;

  const Job& job_;
  const Framework& framework_;
  LeastCosts costs_;
  FactsCache facts_;
  /// mp, pp, dp, sharding degree, layers per stage, sharding stage, persistence threshold.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::vector<std::int64_t>, std::int64_t, std::int64_t>;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const Persistent>> degrees_;
};

}  // namespace plimsoll
