// Evaluate: lowers a strategy, finds its memory, simulates its Programs and sums up the prediction.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "passes/pipeline.h"
#include "plan/plan.h"
#include "predict/breakdown.h"
#include "predict/step_interval.h"
#include "predict/target.h"
#include "simulator/simulate.h"

namespace plimsoll {

/// The Programs of a strategy with their memory, which are known before anything is simulated.
struct Footprint {
  std::vector<Program> programs;        ///< by stage
  std::vector<StagePrediction> stages;  ///< memory of each Program
};

/// The prediction for a strategy, with what the simulation showed beside it.
struct Evaluation {
  Prediction prediction;
  std::vector<std::string> program_digests;
  Timeline timeline;
  StepParts parts;  ///< of the critical rank's step
  std::int64_t critical_rank = 0;
  std::vector<Picoseconds> computes;  ///< by representative rank: Simulation::computes
  StepOpen open;                      ///< of that step
  MeasuredParts measured;             ///< of that step; without a breakdown no communication
};

/// Returns the dense peak rate that MFU is relative to, per device. Where devices are of several
/// kinds, it is the mean over the first `devices`. The cluster states a rate for each of these.
FlopsPerSecond peak_rate(const Cluster& cluster, DType dtype, std::int64_t devices);
/// Throws InputError where the cluster states no such rate for one of the first `devices`. The
/// error names `file`, or the cluster.
void check_peak_rate(const Cluster& cluster, DType dtype, std::int64_t devices,
                     const std::string& file = "");

/// Whether to replay the allocator of a framework that has no arena. A replay costs several times
/// as much as a simulation. Where it is left out, `allocated` and `reserved` of stages mean
/// nothing.
enum class AllocatorReplay : std::uint8_t { run, leave_out };

/// Lowers a legal strategy and finds the memory of its stages. It is fastest without a proof of
/// order. An allocator that is short of memory gives back what it keeps. If a stage does not fit
/// even so, `reserved` is what its allocator would take of a larger device.
Footprint lay_out(const Target& target, const Strategy& strategy, Proof proof,
                  AllocatorReplay replay = AllocatorReplay::run);
/// Returns the largest value of one field over all stages, e.g. of &StagePrediction::peak.
Bytes largest(std::span<const StagePrediction> stages, Bytes StagePrediction::*bytes);
/// Returns the stage that has least room left, or lacks most.
const StagePrediction& tightest_of(std::span<const StagePrediction> stages);
/// Returns the SHA-256 of each Program's text form.
std::vector<std::string> digests_of(std::span<const Program> programs);

/// Simulates a strategy that was laid out. program_digests stay empty, and with Detail::none the
/// breakdown does, too. Throws InfeasibleError where a step takes longer than the simulator's clock
/// holds, and InputError where the cluster states no peak rate for the job's dtype.
Evaluation predict(const Target& target, const Strategy& strategy, const Footprint& footprint,
                   Folding folding = Folding::folded, Detail detail = Detail::ops);

/// Lays out a legal strategy with all proofs, then predicts it. Throws as predict() does. Where a
/// step that takes too long does not fit either, the error says so. Throws InfeasibleError, too,
/// where all ranks of an unfolded step have more than kMostLayerPasses together.
Evaluation evaluate(const Target& target, const Strategy& strategy,
                    Folding folding = Folding::folded);

}  // namespace plimsoll
