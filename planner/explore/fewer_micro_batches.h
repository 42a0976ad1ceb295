// Fewer micro-batches: a shorter step whose Programs tell step time and memory of a longer one.
#pragma once

#include <optional>

#include "predict/target.h"
#include "simulator/ranks/fewer_micro_batches.h"

namespace plimsoll {

/// A target with a smaller global batch, and how its step stands for the longer one.
struct ShorterStep {
  Target target;
  FewerMicroBatches stand_for;
};

/// Stages of 1F1B and ZB-H1 repeat themselves between the micro-batches that fill the pipeline and
/// those that drain it. So lowering some of the micro-batches says as much as lowering all.
/// Returns nothing where that saves little, and where there are no such cycles (GPipe). Returns
/// nothing either if the framework's memory depends on every micro-batch. This is so with an arena,
/// and where the framework keeps something of each micro-batch to the end of the step.
std::optional<ShorterStep> with_fewer_micro_batches(const Target& target, const Strategy& strategy);

}  // namespace plimsoll
