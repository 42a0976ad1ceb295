// Memory bounds: the least bytes that a strategy needs on its heaviest stage.
#pragma once

#include <span>
#include <vector>

#include "planner/bounds/stage_chunks.h"

namespace plimsoll {

/// Bounds of the largest values over stages.
struct MemoryBound {
  Bytes peak, arena, reserved;  ///< of the StagePrediction fields with these names
};

/// Bytes that live between steps: parameters, gradients, optimizer state, workspace.
struct LastingBytes {
  Bytes program;    ///< alive in every call of the Program, so that no peak is below them
  Bytes framework;  ///< the part that the framework has between steps, too (made_in_steps)
};

/// Returns the bytes that live between steps, by stage, read off Programs of few micro-batches.
/// They depend only on the degrees and on the form of sharding.
std::vector<LastingBytes> persistent_bytes(const PassContext& context);
/// Returns persistent_bytes() of a pipeline with so many layers on each stage and at most three
/// stages: the first, a middle and the last one, which has the MTP modules beside its layers.
std::vector<LastingBytes> persistent_bytes_of(std::int64_t layers, const PassContext& context);

/// Returns the bounds of all kinds of stages. Beside the bytes that live between steps
/// (`persistent`, by stage), a stage holds at one call:
///
///   - for each micro-batch and chunk in flight, the bytes between its forward and its backward;
///   - bytes that weight gradients still need, and the send slots in use;
///   - the frame and the borders of the call;
///   - with sharded parameters, those gathered for this call and the next one;
///   - with sharded gradients, those of this call, and of the call before where reductions overlap.
///
/// All of these are alive at once, so that the peak is no smaller. The bound looks at all calls of
/// the stage's order until the order repeats itself. An arena holds them all beside the largest
/// frame, which has a place of its own. Published and held sends count only while they are written.
/// An allocator that is not an arena takes at least the bytes alive between two calls, or the bytes
/// that the framework keeps of every micro-batch to the end of the step (BorderMemory::for_each),
/// whichever are more.
MemoryBound memory_bound(const PassContext& context, const MicroBatchFacts& facts,
                         std::span<const StageKind> kinds,
                         std::span<const LastingBytes> persistent);

}  // namespace plimsoll
