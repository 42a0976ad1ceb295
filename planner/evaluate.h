// Evaluate: Strategy -> lower -> memory -> simulate -> Score.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/framework.h"
#include "models/job.h"
#include "passes/pipeline.h"
#include "passes/strategy.h"
#include "plan/plan.h"
#include "simulator/cost_model.h"
#include "simulator/simulate.h"

namespace plimsoll {

struct Score {
  Prediction prediction;
  Bytes arena;  ///< largest over stages: what is allocated
  Bytes peak;   ///< largest over stages
  /// Every stage's arena, what the framework takes outside it (memory_outside_program) and the
  /// reserve are within the smallest of its devices.
  bool fits = false;
};

struct Evaluation {
  Score score;
  std::vector<std::string> program_digests;
  Timeline timeline;
};

/// A strategy's Programs and their memory: all there is to know before simulating.
struct Footprint {
  std::vector<Program> programs;  ///< by stage
  std::vector<StagePrediction> stages;
  Bytes arena, peak;  ///< largest over stages
  bool fits = false;  ///< as Score's
};

/// The dense peak that MFU is relative to, per device: where devices are of several kinds, the mean
/// over the first `devices`. Throws InputError where the cluster states none for one of these, with
/// `file` if it is known.
FlopsPerSecond peak_rate(const Cluster& cluster, DType dtype, std::int64_t devices,
                         const std::string& file = "");
/// The strategy must be legal(). Costs far less than simulating, least without a proof of order.
Footprint lay_out(const Job& job, const Strategy& strategy, const Framework& framework,
                  const Cluster& cluster, Bytes reserve, Proof proof);
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

/// All of it. Reserve: bytes kept free on each device beside the planned arena (runtime,
/// libraries). The strategy must be legal(). Throws InputError when the cluster states no peak for
/// the job's dtype, InfeasibleError as predict; with the bytes too where it does not fit either.
Evaluation evaluate(const Job& job, const Strategy& strategy, const Framework& framework,
                    const CostModel& costs, std::int64_t devices, Bytes reserve,
                    Folding folding = Folding::folded);

}  // namespace plimsoll
