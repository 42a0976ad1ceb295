// Memory bounds: the bytes that a strategy needs at least on its heaviest stage.
#pragma once

#include <span>
#include <vector>

#include "planner/bounds/stage_chunks.h"

namespace plimsoll {

struct MemoryBound {
  Bytes peak, arena, reserved;  ///< as Score's
};

/// Bytes that live between steps: parameters, gradients, optimizer state, workspace.
struct LastingBytes {
  Bytes program;    ///< in the Program: alive in every call, so no peak is below it
  Bytes framework;  ///< of that, what the framework has between steps, too (made_in_steps)
};

/// By stage: read off Programs of few micro-batches. Depends on the degrees and on how sharding is
/// done only.
std::vector<LastingBytes> persistent_bytes(const Job& job, const Strategy& strategy,
                                           const Framework& framework);
/// persistent_bytes() of a pipeline of at most three stages (the first, a middle and the last one)
/// with so many layers on each.
std::vector<LastingBytes> persistent_bytes_of(std::int64_t layers, const Job& job,
                                              const Strategy& strategy, const Framework& framework);

/// Beside what is persistent, a stage holds what lies between a forward and its backward for each
/// micro-batch and chunk in flight, what its weight gradients still need, the send slots in use,
/// and the frame and borders of the call that runs; with sharded parameters what is gathered for
/// that call and the next one, with sharded gradients those of this call and, where reductions
/// overlap, of the one before. All calls of the stage's order are looked at until the order repeats
/// itself. Each such set of buffers is alive at one call, so the peak is no smaller; the arena
/// holds them all beside the largest frame, which has a place of its own. Published and held sends
/// count only while they are written. An allocator that is not an arena takes at least what is
/// alive between two calls, and what the framework keeps of every micro-batch to the end of the
/// step (BorderMemory::for_each), whichever is more.
MemoryBound memory_bound(const Job& job, const Strategy& strategy, const Framework& framework,
                         const MicroBatchFacts& facts, std::span<const StageKind> kinds,
                         std::span<const LastingBytes> persistent);

}  // namespace plimsoll
