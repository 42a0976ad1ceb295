// Layer cut: how many layers each stage of a pipeline has, and how many of them it recomputes, by
// dynamic programming that is exact for its objective.
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
  std::int64_t recomputed = 0;  ///< of its layers
  Picoseconds forward;          ///< that the stage takes for one micro-batch
  Picoseconds work;             ///< forward and backward
  Picoseconds passes;           ///< the same from where one arrives there, with its transfers
};

/// A pipeline in 1F1B over layers that are all alike.
struct CutProblem {
  std::int64_t stages = 1, layers = 1, micro_batches = 1;
  std::optional<Picoseconds> limit = {};  ///< a cut whose objective is not less is none
};
/// The ways to run so many layers on this stage; none where they do not fit.
using StageOptions =
    std::function<std::vector<StageOption>(std::int64_t stage, std::int64_t layers)>;

struct StageChoice {
  std::int64_t layers = 0, recomputed = 0;
  bool operator==(const StageChoice&) const = default;
};
struct LayerCut {
  std::vector<StageChoice> stages;
  Picoseconds step;  ///< the objective
};

/// The objective, of one option for each stage: the longest, over all stages, of what the first
/// micro-batch and the last gradient take on the stages before it, its own work for every
/// micro-batch, and its wait for the first gradient: that comes back once the stages behind it are
/// through with it, while the stage runs the forwards that 1F1B puts before its first backward.
/// Without what follows the last backward (reduction of gradients, update). Throws InfeasibleError
/// beyond what the clock holds, as best_cut does.
Picoseconds pipeline_objective(std::span<const StageOption> stages, std::int64_t micro_batches);

/// Least objective; of equal ones, the one whose stages take the most equal times as far as the
/// choices that are kept differ in it. Nothing where no cut fits, or none is below the limit.
///
/// From the last stage back to the first. For stages s and later with n layers left, it keeps those
/// choices that no other beats both in the time a micro-batch takes through them and in the
/// objective counted from stage s on. The objective with one more stage before them grows with
/// both, so no choice that is dropped can be part of the only best cut.
std::optional<LayerCut> best_cut(const CutProblem& problem, const StageOptions& options);

}  // namespace plimsoll
