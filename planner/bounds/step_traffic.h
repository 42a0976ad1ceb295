// Step traffic: the collectives that a stage has once per step, which reduce gradients and gather
// parameters. They run one after the other on the stream of data, beside little of the step's work.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "planner/bounds/block_facts.h"
#include "predict/memo.h"
#include "predict/target.h"

namespace plimsoll {

/// The step traffic of a stage.
struct StageTraffic {
  Picoseconds gathers, reductions;
  LinkTimes links;  ///< of both
};

/// Returns a bound of the step time from the step traffic of a stage, from its work on one
/// micro-batch, and from the part of the work that is on the last of its chunks. All gradients are
/// reduced behind the last micro-batch's backward on the last chunk, and then parameters are
/// gathered for the next step. Behind the last gather the stage works on all micro-batches but
/// those that may run beside the collectives:
///
///   - a forward on the last chunk, and up to pp forwards on each chunk before it;
///   - a backward on the last chunk, and up to pp backwards on each chunk before it;
///   - weight gradients of up to 2 pp micro-batches, where these are put off;
///   - two micro-batches that run in turns with others to overlap the exchange of experts.
///
/// In a V the work is not counted. Throws InfeasibleError beyond the clock's range.
Picoseconds step_traffic_bound(const Strategy& strategy, std::int64_t micro_batches,
                               const StageTraffic& traffic, Picoseconds work, Picoseconds on_last);

/// Finds the step traffic of stages from their bytes, as if each kind of collective were one. It
/// takes no more time than its buckets. Safe to share between threads.
class StepTraffic {
 public:
  explicit StepTraffic(const Target& target) : target_(target) {}

  /// Returns the times; 0 where tensors have owners, and where times of collectives were measured.
  StageTraffic of(const Strategy& strategy, const WeightBytes& weights,
                  const LeastCosts& costs) const;

 private:
  /// A collective over all gradients or parameters, or over the part that a rank keeps.
  struct Collective {
    Routine routine;
    bool of_gradients = false, of_experts = false, of_part = false;
    Bytes of(const WeightBytes& weights) const;
  };
  using Collectives = std::vector<Collective>;
  Collectives find(const Strategy& small) const;
  StageTraffic times(const Collectives& collectives, const Grid& grid, std::int64_t shards,
                     const WeightBytes& weights, const LeastCosts& costs) const;

  const Target target_;
  mutable Memo<Collectives> known_;  ///< by small strategy, of which there are few
  mutable std::mutex mutex_;
  /// Times by what they depend on: collectives, costs, ranks and their order, shards, bytes.
  using Key = std::tuple<const Collectives*, const LeastCosts*, std::array<std::int64_t, kAxes>,
                         std::array<Axis, kRankAxes>, std::int64_t, WeightBytes>;
  mutable std::map<Key, StageTraffic> times_;
};

}  // namespace plimsoll
