// The job and the cluster of the planner's tests: a small job and a machine chosen for round
// numbers.
#pragma once

#include <string_view>

#include "models/cluster/cluster.h"
#include "models/job/job.h"
#include "predict/target.h"

namespace plimsoll {

/// tests/gpt-nano.json: 4 layers, hidden 64, 4 heads, sequence 32, global batch 16.
Job nano_job();
/// One node of 4 CPU cores: 100 GFLOP/s, 10 GB/s, 4 GiB each.
Cluster small_cluster();
/// A built-in cluster.
Cluster preset_cluster(std::string_view name);
/// Without calibration: roofline.
CostModel small_costs(const Cluster& cluster);
/// nano_job() on devices of a cluster, with small_costs().
Target nano_target(std::int64_t devices, const Cluster& cluster = small_cluster(),
                   Bytes reserve = Bytes());

}  // namespace plimsoll
