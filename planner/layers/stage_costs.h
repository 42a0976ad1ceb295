// Stage costs: time and memory of one pipeline stage by how many layers it has and recomputes.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/layers/layer_cut.h"

namespace plimsoll {

/// Bytes that live between steps on the first, a middle and the last stage, by their layers: read
/// off lowered models of few layers, the rest on a straight line.
struct LastingLines {
  struct Line {
    LastingBytes one, layer;  ///< with one layer, and for each more
  };
  std::array<Line, 3> stages;
  LastingBytes of(std::int64_t stage, std::int64_t stages_in_all, std::int64_t layers) const;
};
LastingLines lasting_lines(const Job& job, const Strategy& strategy, const Framework& framework);

/// The costs of the stages of one strategy in 1F1B, without virtual stages. They hold only for
/// models whose layers are all alike (layers_are_alike).
class StageCosts {
 public:
  StageCosts(const Job& job, const Framework& framework, const Strategy& strategy,
             std::shared_ptr<const MicroBatchFacts> facts, const LeastCosts& costs);

  /// The first `recomputed` layers recompute. Throws InfeasibleError beyond what the clock holds.
  StageOption time(std::int64_t stage, std::int64_t layers, std::int64_t recomputed) const;
  /// Live bytes at the peak and what is reserved at least (memory_bound.h), the larger of both.
  Bytes memory(const LastingLines& lasting, std::int64_t stage, std::int64_t layers,
               std::int64_t recomputed) const;

 private:
  Chunk chunk_of(std::int64_t stage, std::int64_t layers, std::int64_t recomputed) const;

  const Job& job_;
  const Framework& framework_;
  Strategy strategy_;
  std::shared_ptr<const MicroBatchFacts> facts_;
  std::size_t layer_ = 0;          ///< index of the layers' block
  std::vector<StageSpans> spans_;  ///< of stages with one layer each, which keeps all
};

bool layers_are_alike(const MicroBatchFacts& facts);
/// No cut of these blocks over so many stages takes less for a step of so many micro-batches; at
/// most kLongestStep.
Picoseconds least_of_any_cut(const Job& job, const MicroBatchFacts& facts, std::int64_t stages,
                             std::int64_t micro_batches);

}  // namespace plimsoll
