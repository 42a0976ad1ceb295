// Evaluate: Strategy -> lower -> memory -> simulate -> Score.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/calibration/fitted_calibration.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/pipeline.h"
#include "passes/strategy/strategy.h"
#include "plan/plan.h"
#include "predict/breakdown.h"
#include "predict/step_interval.h"
#include "simulator/costs/cost_model.h"
#include "simulator/simulate.h"

namespace plimsoll {

struct Score {
  Prediction prediction;
  Bytes arena;                ///< largest over stages
  Bytes peak;                 ///< largest over stages
  Bytes allocated, reserved;  ///< largest over stages, as StagePrediction's
  /// Whether the bytes that every stage reserves, those that the framework takes outside
  /// (memory_outside_program) and the reserve are within the smallest of its devices.
  bool fits = false;
};

struct Evaluation {
  Score score;
  std::vector<std::string> program_digests;
  Timeline timeline;
  StepParts parts;  ///< of the critical rank's step
  std::int64_t critical_rank = 0;
  std::vector<Picoseconds> computes;  ///< by representative rank, of which that computes longest
  MeasuredParts measured;             ///< of that step; without a breakdown no communication
};

/// The shape that the time of its layers depends on.
LayerShape layer_shape(const Job& job, const Strategy& strategy);

/// A strategy's Programs and their memory: all there is to know before simulating.
struct Footprint {
  std::vector<Program> programs;  ///< by stage
  std::vector<StagePrediction> stages;
  Bytes arena, peak;  ///< largest over stages
  Bytes allocated, reserved;
  bool fits = false;  ///< as Score's
};

/// The dense peak that MFU is relative to, per device: where devices are of several kinds, the mean
/// over the first `devices`. Throws InputError where the cluster states none for one of these, with
/// `file` if it is known.
FlopsPerSecond peak_rate(const Cluster& cluster, DType dtype, std::int64_t devices,
                         const std::string& file = "");
/// Frameworks without an arena replay their allocator, which costs several times what simulating
/// does. Left out: what they hand out and take of the driver is not known, and all of it fits.
enum class AllocatorReplay : std::uint8_t { run, leave_out };

/// The strategy must be legal(). Costs least without a proof of order. Allocators: where memory is
/// short they give back what they keep; of what does not fit even so, it is what would be taken if
/// there was more memory.
Footprint lay_out(const Job& job, const Strategy& strategy, const Framework& framework,
                  const Cluster& cluster, Bytes reserve, Proof proof,
                  AllocatorReplay replay = AllocatorReplay::run);
/// Replays the allocators, which lay_out() left out.
void replay_allocators(Footprint& footprint, const Job& job, const Strategy& strategy,
                       const Framework& framework, Bytes reserve);
/// The one that has least room left, or lacks most.
const StagePrediction& tightest_of(std::span<const StagePrediction> stages);
/// SHA-256 of each Program's text form.
std::vector<std::string> digests_of(std::span<const Program> programs);
/// Simulates; program_digests stay empty, the breakdown too with Detail::none. Throws
/// InfeasibleError where a step would take longer than the simulator reckons with, InputError as
/// evaluate.
Evaluation predict(const Job& job, const Strategy& strategy, const Footprint& footprint,
                   const CostModel& costs, std::int64_t devices, Folding folding = Folding::folded,
                   Detail detail = Detail::ops);

/// The costs that ops of layers of this shape have: with the factor that was fitted for it.
CostModel costs_of(const CostModel& costs, const LayerShape& shape);

/// All of it. Reserve: bytes kept free on each device beside the planned arena (runtime,
/// libraries). The strategy must be legal(). Throws InputError when the cluster states no peak for
/// the job's dtype, InfeasibleError as predict; with the bytes too where it does not fit either.
Evaluation evaluate(const Job& job, const Strategy& strategy, const Framework& framework,
                    const CostModel& costs, std::int64_t devices, Bytes reserve,
                    Folding folding = Folding::folded);

}  // namespace plimsoll
