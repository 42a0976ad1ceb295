// A published target is a published run in the types of this program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "predict/cost_basis.h"
#include "predict/target.h"
#include "published/published_run.h"

namespace plimsoll {

/// A PublishedTarget has the job, machine and strategies of a published run.
struct PublishedTarget {
  Job job;
  Cluster cluster;
  Device device;  ///< as the cluster states it, without the rate of TF32 for products of f32
  Framework framework;
  std::optional<Calibration> measured;
  std::optional<FittedCalibration> fitted;
  std::string calibration;  ///< CostBasis::name
  std::int64_t devices = 0;
  /// Whether the measured memory is that of the last rank, which writes Megatron-LM's logs, and not
  /// of the rank with most memory.
  bool memory_of_last_rank = false;
  /// Several strategies where the source leaves out choices of its authors (micro-batch,
  /// recompute). The fastest one that fits counts, since the authors are assumed to have chosen it.
  std::vector<Strategy> strategies;
  /// The reason why the run cannot be predicted: a missing field, or a feature that the predictor
  /// lacks. Empty: the fields above are set.
  std::string missing;

  /// The target of predictions, with no reserve.
  Target target() const;
};

/// Puts a run on a user's cluster if its GPU is the cluster's device, by name or as a preset's.
void put_on(const Cluster& cluster, PublishedRun& run);

/// Makes the target of a run. Facts that the source does not state and that change the outcome
/// little are filled in; docs/how-it-works/published-runs.md lists them. Where the source does not
/// say whether layers are recomputed, the calibration decides, or else `assumed`.
PublishedTarget published_target(const PublishedRun& run, const CalibrationChoice& calibration = {},
                                 const AssumedRecompute& assumed = {});

}  // namespace plimsoll
