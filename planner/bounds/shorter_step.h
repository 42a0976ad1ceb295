// Shorter step: a step of fewer micro-batches, from whose Programs step time and memory of a longer
// one follow.
#pragma once

#include <optional>

#include "predict/target.h"
#include "simulator/ranks/fewer_micro_batches.h"

namespace plimsoll {

/// Returns how many cycles a step of `micro_batches` may lack and still show how its pipeline
/// repeats itself: those between the micro-batches that fill the pipeline and those that drain it.
/// Returns nothing if that saves little, and if there are no such cycles (GPipe).
std::optional<FewerMicroBatches> fewer_micro_batches(const Strategy& strategy,
                                                     std::int64_t micro_batches);

/// A target with a smaller global batch, and how its step stands for the longer one.
struct ShorterStep {
  Target target;
  FewerMicroBatches stand_for;
};

/// Returns the target with these fewer micro-batches. Lowering them is as good as lowering all.
/// Returns nothing if the framework's memory depends on every micro-batch. This is so with an
/// arena, and if the framework keeps something of each micro-batch to the end of the step.
std::optional<ShorterStep> with_fewer_micro_batches(const Target& target, const Strategy& strategy);

}  // namespace plimsoll
