// Bounds: admissible lower bounds of what `evaluate` would find for a strategy, without lowering
// all of it. Each is at most the evaluated value, for every strategy, framework and device kind;
// from cheap to sharp, with what each depends on:
//
//   persistent   degrees                        bytes that live between steps
//   memory       + micro-batch, recompute       and what micro-batches in flight keep
//   bottleneck   + micro-batch, recompute       time of the slowest stage between fill and drain
//   actions      + micro-batch, recompute       time of the order by whole actions
//   pipeline     + gradient bucket bytes        the same, and the tail
//
// memory_bound.h and time_bound.h say why each holds. They follow the order of every schedule.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "planner/bounds/memory_bound.h"
#include "planner/bounds/micro_batch_traffic.h"
#include "planner/bounds/time_bound.h"

namespace plimsoll {

/// Lower bounds for one job on one cluster. They are safe to share between threads. The strategies
/// must be legal. Time bounds throw InfeasibleError where they exceed what the clock holds (106
/// days).
class Bounds {
 public:
  Bounds(const Job& job, const Framework& framework, const CostModel& costs, std::int64_t devices);

  std::shared_ptr<const MicroBatchFacts> facts(const Strategy& strategy) const {
    return facts_.of(strategy);
  }
  std::shared_ptr<const MicroBatchFacts> facts_without_transfers(const Strategy& strategy) const {
    return facts_.without_transfers(strategy);
  }
  std::shared_ptr<const MicroBatchFacts> work(const Strategy& strategy) const {
    return facts_.work(strategy);
  }
  std::shared_ptr<const MicroBatchFacts> ring_work(const Strategy& strategy) const {
    return facts_.ring(strategy);
  }
  /// The bytes of the heaviest stage: a bound of its peak, of its arena and of its reserved bytes.
  Bytes persistent(const Strategy& strategy) const;
  MemoryBound memory(const Strategy& strategy) const;
  Picoseconds bottleneck(const Strategy& strategy) const;
  /// The pipeline bound without what a step does before and behind its micro-batches, for any
  /// grad_bucket_bytes. 0 where micro-batches have traffic of their own, or owners cast.
  /// `enough(bound)`: the bound need not be sharper.
  Picoseconds actions(const Strategy& strategy,
                      const std::function<bool(Picoseconds)>& enough = {}) const;
  Picoseconds pipeline(const Strategy& strategy) const;
  /// Bounds of strategies that differ in grad_bucket_bytes only; none where Programs come out as
  /// those of an earlier one. `enough(i, bound)`: a bound of strategies[i] need not be sharper.
  using Enough = std::function<bool(std::size_t, Picoseconds)>;
  std::vector<std::optional<Picoseconds>> pipelines(std::span<const Strategy> strategies,
                                                    const Enough& enough = {}) const;

 private:
  Picoseconds with_traffic(const Strategy& strategy, std::vector<StageSpans> spans,
                           std::span<const StepTail* const> tails) const;
  using Persistent = std::vector<LastingBytes>;  ///< by stage
  std::shared_ptr<const Persistent> degrees(const Strategy& strategy) const;
  MicroBatchTraffic traffic(const Strategy& strategy) const;

  const Job& job_;
  const Framework& framework_;
  ShapeCosts costs_;
  FactsCache facts_;
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;  ///< degrees
  mutable std::mutex mutex_;
  /// By degrees, then by all else that it depends on.
  mutable std::map<Key, std::vector<std::pair<Strategy, std::shared_ptr<const Persistent>>>>
      degrees_;
  /// By strategy, without micro-batch, and by the costs of its shape. Looked up only.
  mutable std::map<std::pair<std::string, const LeastCosts*>, MicroBatchTraffic> traffic_;
};

}  // namespace plimsoll
