// Layer cut: finds how many layers each stage of a pipeline has and recomputes, by dynamic
// programming that is exact for its objective.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// One way to run some layers on a stage.
struct StageOption {
  std::int64_t recomputed = 0;  ///< layers
  Picoseconds forward;          ///< time for one micro-batch
  Picoseconds work;             ///< time for one micro-batch, forward and backward
  Picoseconds passes;           ///< `work` with the transfers into the stage
};

/// A pipeline in 1F1B over layers that are all alike.
struct CutProblem {
  std::int64_t stages = 1, layers = 1, micro_batches = 1;
  std::optional<Picoseconds> limit = {};  ///< the objective of a cut must be less
};
/// Returns the ways to run so many layers on this stage: none where they do not fit.
using StageOptions =
    std::function<std::vector<StageOption>(std::int64_t stage, std::int64_t layers)>;

/// The layers of one stage.
struct StageChoice {
  std::int64_t layers = 0, recomputed = 0;
  bool operator==(const StageChoice&) const = default;
};
/// A cut of all layers.
struct LayerCut {
  std::vector<StageChoice> stages;
  Picoseconds step;  ///< the objective
};

/// Returns the objective of one option for each stage. It is the longest path over all stages s.
/// The path has three parts:
///
///   - the first micro-batch and the last gradient pass the stages before s;
///   - stage s works on every micro-batch;
///   - stage s waits for the first gradient. The stages behind s work on it meanwhile, and s runs
///   the
///     forwards that 1F1B puts before its first backward.
///
/// The work behind the last backward (reduction of gradients, update) is left out. Throws
/// InfeasibleError beyond the clock's range, as best_cut does.
Picoseconds pipeline_objective(std::span<const StageOption> stages, std::int64_t micro_batches);

/// Returns the cut of least objective. Among equal ones it is the cut whose stages have the most
/// equal times, as far as the choices that are kept show it. Returns nothing where no cut fits, or
/// none is below the limit.
///
/// The dynamic programme goes from the last stage back to the first. For stages s and later with n
/// layers left, it keeps the choices that no other choice beats in two values. These are the time
/// of a micro-batch through these stages, and the objective from stage s on. The objective with one
/// more stage in front grows with both. So a choice that is dropped cannot be part of the only best
/// cut.
std::optional<LayerCut> best_cut(const CutProblem& problem, const StageOptions& options);

}  // namespace plimsoll
