// Hand-made Programs: pipelines with tensor parallel layers, data parallel buckets and a global
// norm, small enough to count by hand.
#pragma once

#include <vector>

#include "graph/program.h"
#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

struct HandJob {
  Grid grid;
  std::vector<std::int64_t> layers;  ///< by stage
  std::int64_t micro_batches = 1;
  std::int64_t elements = 256;  ///< of each activation (f32)
  bool short_backward = false;  ///< as long as forward, not twice
};

/// 1F1B: per layer a forward (read and write `elements`, all-reduce over mp) and a backward (twice
/// that), sends and receives between stages, one gradient all-reduce over dp, one norm over all.
std::vector<Program> hand_pipeline(const HandJob& job);

/// Devices that move 1 byte per nanosecond; links of 0.1 and 0.01 byte per nanosecond within and
/// beyond `devices_per_node` devices, with latencies 100 ns and 1000 ns.
Cluster hand_cluster(DeviceKind kind, std::int64_t devices_per_node);

/// Measured over NCCL: how matmuls and communications slow each other, each kind otherwise.
Calibration hand_overlaps();

}  // namespace plimsoll
