// Bounds: lower bounds of the step time and the memory of a strategy, found without lowering all of
// it. Each bound is at most the value that evaluate() finds, for every strategy, framework and kind
// of device. Only `actions` may exceed the step time, by up to 0.05 %: kernels lose time beside
// transfers, and may lose more where a transfer comes earlier. From cheap to sharp, with the
// choices that each depends on:
//
//   persistent   degrees                        bytes that live between steps
//   memory       + micro-batch, recompute       and bytes of micro-batches in flight
//   bottleneck   + micro-batch, recompute       time of the slowest stage between fill and drain
//   traffic      + gradient bucket bytes        communication of every micro-batch (stages 2, 3)
//   actions      + micro-batch, recompute       time of all actions in the schedule's order
//
// memory_bound.h and time_bound.h say why each holds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "planner/bounds/memory_bound.h"
#include "planner/bounds/micro_batch_traffic.h"
#include "planner/bounds/step_traffic.h"
#include "planner/bounds/time_bound.h"
#include "predict/memo.h"

namespace plimsoll {

/// Returns the bound that `bound()` returns, at most kLongestStep: also where the step exceeds the
/// clock's range.
Picoseconds capped(const std::function<Picoseconds()>& bound);

/// Lower bounds for one target. They are safe to share between threads. The strategies must be
/// legal. Time bounds throw InfeasibleError where a time exceeds the clock's range (106 days).
class Bounds {
 public:
  explicit Bounds(const Target& target);

  std::shared_ptr<const MicroBatchFacts> facts(const Strategy& strategy) const {
    return facts_.of(strategy);
  }
  std::shared_ptr<const MicroBatchFacts> facts_without_transfers(const Strategy& strategy) const {
    return facts_.without_transfers(strategy);
  }
  std::shared_ptr<const MicroBatchFacts> work(const Strategy& strategy,
                                              DeviceKindIndex kind = {}) const {
    return facts_.work(strategy, kind);
  }
  std::shared_ptr<const MicroBatchFacts> ring_work(const Strategy& strategy,
                                                   DeviceKindIndex kind = {}) const {
    return facts_.ring(strategy, kind);
  }
  /// Returns the times of the collectives that a stage with these weights has once per step.
  StageTraffic step_traffic(const Strategy& strategy, const WeightBytes& weights) const {
    return step_traffic_.of(strategy, weights, costs_.of(strategy));
  }
  /// A transfer from a stage to the next; from the last stage it goes to the first.
  struct Transfer {
    Picoseconds time;
    LinkTimes links;
  };
  /// Returns the least transfer of any border, by the stage that sends it. Measured transfers of
  /// fewer bytes may take longer, so that each border has the bytes that are sent.
  std::vector<Transfer> transfers(const Strategy& strategy) const;
  /// Returns a bound of peak, arena and reserved bytes of the heaviest stage.
  Bytes persistent(const Strategy& strategy) const;
  MemoryBound memory(const Strategy& strategy) const;
  Picoseconds bottleneck(const Strategy& strategy) const;
  /// Runs the actions of all stages in the order of the schedule. The work before the first forward
  /// and behind the last backward is left out, and collectives of a step count with all their bytes
  /// at once, so that the bound holds for any grad_bucket_bytes. It is 0 where a forward and a
  /// backward run in turns, where owners cast parameters, and where a chunk is empty. If
  /// enough(bound) is true, the bound need not be sharper.
  Picoseconds actions(const Strategy& strategy,
                      const std::function<bool(Picoseconds)>& enough = {}) const;
  /// Returns the least time of the communication that every micro-batch has
  /// (micro_batch_traffic.h); 0 where none is counted. Bounds of strategies that shard parameters
  /// have it already.
  Picoseconds traffic(const Strategy& strategy) const;
  /// Returns, for strategies that differ in grad_bucket_bytes only, the indices of those whose
  /// Programs differ from the Programs of all before them.
  std::vector<std::size_t> with_own_programs(std::span<const Strategy> strategies) const;

 private:
  std::vector<StageSpans> spans_of(const Strategy& strategy, const MicroBatchFacts& facts,
                                   std::span<const StageChunks> chunks) const;
  using Persistent = std::vector<LastingBytes>;  ///< by stage
  const Persistent& degrees(const Strategy& strategy) const;

  const Target target_;
  ShapeCosts costs_;
  FactsCache facts_;
  StepTraffic step_traffic_;
  mutable Memo<Persistent> degrees_;  ///< bytes that live between steps
  /// Traffic by micro-batches, at most 3, and by the costs of the layers' shape.
  mutable Memo<MicroBatchTraffic, std::int64_t, const LeastCosts*> traffic_;
};

}  // namespace plimsoll
