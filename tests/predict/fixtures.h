// The job and the cluster of the planner's tests: a small job and a machine chosen for round
// numbers.
#pragma once

#include "models/cluster/cluster.h"
#include "models/job/job.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// tests/gpt-nano.json: 4 layers, hidden 64, 4 heads, sequence 32, global batch 16.
Job nano_job();
/// One node of 4 CPU cores: 100 GFLOP/s, 10 GB/s, 4 GiB each.
Cluster small_cluster();
/// Without calibration: roofline.
CostModel small_costs(const Cluster& cluster);

}  // namespace plimsoll
