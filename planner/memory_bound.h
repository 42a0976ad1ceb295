// Memory bounds: the bytes that a strategy needs at least on its heaviest stage.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "planner/block_facts.h"

namespace plimsoll {

struct MemoryBound {
  Bytes peak, arena;  ///< as Score's
};

/// A stage by what makes it differ from others; `first` is the first of them, which has the most
/// micro-batches in flight.
struct StageKind {
  std::int64_t first = 0;
  std::vector<std::int64_t> instances;  ///< by block
};
std::vector<StageKind> stage_kinds(const Job& job, const Strategy& strategy);

/// What lives between steps (parameters, gradients, optimizer state, workspace), by stage kind:
/// read off Programs of one micro-batch. It is alive in every call, so no peak is below it.
/// Depends on the degrees only.
std::vector<Bytes> persistent_bytes(const Job& job, const Strategy& strategy,
                                    const Framework& framework);

/// Beside what is persistent, a stage holds for each of min(m, pp - stage) micro-batches in flight
/// what lies between its forward and its backward, the send slots in use, and the frame and borders
/// of the call that runs: of all calls of a stage the heaviest few are looked at. Each such set of
/// buffers is alive at one call of 1F1B, so the peak is no smaller; the arena holds them all beside
/// the largest frame, which has a place of its own.
MemoryBound memory_bound(const Job& job, const Strategy& strategy, const MicroBatchFacts& facts,
                         std::span<const StageKind> kinds, std::span<const Bytes> persistent);

}  // namespace plimsoll
