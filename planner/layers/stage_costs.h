// Stage costs: time and memory of a pipeline stage, by the number of layers it has and recomputes.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/layers/layer_cut.h"

namespace plimsoll {

/// Bytes that live between steps on the first, a middle and the last stage. They are read off
/// lowered models of few layers, and lie on a straight line over the number of layers.
struct LastingLines {
  struct Line {
    LastingBytes one, layer;  ///< bytes with one layer, and for each further layer
  };
  std::array<Line, 3> stages;
  LastingBytes of(std::int64_t stage, std::int64_t stages_in_all, std::int64_t layers) const;
};
LastingLines lasting_lines(const PassContext& context);

/// The costs of the stages of one strategy in 1F1B without virtual stages. They hold only for
/// models whose layers are all alike (layers_are_alike).
class StageCosts {
 public:
  StageCosts(const Target& target, const Strategy& strategy,
             std::shared_ptr<const MicroBatchFacts> facts, const LeastCosts& costs);

  /// Returns the times of a stage whose first `recomputed` layers recompute. Throws InfeasibleError
  /// beyond the clock's range.
  StageOption time(std::int64_t stage, std::int64_t layers, std::int64_t recomputed) const;
  /// Returns bounds of live bytes and of reserved bytes (memory_bound.h), the larger of both.
  Bytes memory(const LastingLines& lasting, std::int64_t stage, std::int64_t layers,
               std::int64_t recomputed) const;

 private:
  Chunk chunk_of(std::int64_t stage, std::int64_t layers, std::int64_t recomputed) const;

  const Target target_;
  Strategy strategy_;
  std::shared_ptr<const MicroBatchFacts> facts_;
  std::size_t layer_ = 0;          ///< index of the layers' block
  std::vector<StageSpans> spans_;  ///< of stages with one layer each, without recompute
};

/// Whether all layers of the model are of one block.
bool layers_are_alike(const MicroBatchFacts& facts);
/// Returns a lower bound of the step time of any cut of these blocks over so many stages, at most
/// kLongestStep.
Picoseconds least_of_any_cut(const Job& job, const MicroBatchFacts& facts, std::int64_t stages,
                             std::int64_t micro_batches);

}  // namespace plimsoll
