// Published target: what a published run was, in the words of this program.
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
#include "published/published_run.h"

namespace plimsoll {

/// Job, machine and strategy of a published run.
struct PublishedTarget {
  Job job;
  Cluster cluster;
  Framework framework;
  std::optional<Calibration> measured;
  std::optional<FittedCalibration> fitted;
  std::string calibration;    ///< CostBasis::name
  bool source_known = false;  ///< `fitted` has runs of the same document
  std::int64_t devices = 0;
  /// Memory is that of the last rank (which writes Megatron-LM's logs), not of the one that has
  /// most.
  bool memory_of_last_rank = false;
  /// More than one where the source does not say what its authors chose (micro-batch, recompute):
  /// the fastest that fits counts, as one assumes of them.
  std::vector<Strategy> strategies;
  /// Why it cannot be predicted: the field that is missing or what the predictor lacks. Empty:
  /// everything above is there.
  std::string missing;
};

/// Facts that the source does not state and that do not change the outcome much are filled in:
/// docs/how-it-works/published-runs.md lists them. Whether layers are repeated that the source says
/// nothing of: as the calibration found, or as `assumed`.
PublishedTarget published_target(const PublishedRun& run, const CalibrationChoice& calibration = {},
                                 const AssumedRecompute& assumed = {});

/// Bandwidth per device between nodes that a description states: "8x100 Gb/s", "1600 Gbps
/// node-node", "400 Gb/s RDMA per GPU" (per node unless it says per GPU); nothing where there is no
/// number.
std::optional<BytesPerSecond> stated_network(std::string_view interconnect,
                                             std::int64_t devices_per_node);

}  // namespace plimsoll
