// Search: the best strategy of a space, by brute force.
#pragma once

#include <functional>

#include "planner/evaluate.h"
#include "planner/space.h"

namespace plimsoll {

struct SearchRequest {
  Job job;
  Framework framework;
  std::int64_t devices = 0;
  Fixed fixed;
  Bytes reserve;
  std::string cluster_digest, calibration_digest;
  /// Candidates evaluated at once; 0 = as many as the machine has cores. The plan does not depend
  /// on it.
  std::int64_t threads = 0;
  /// Called after each candidate, one call at a time, from any of the threads.
  std::function<void(std::int64_t done, std::int64_t of)> progress;
};

/// Least step time among the plans that fit; ties: fewer peak bytes, then canonical order. Throws
/// InfeasibleError with the rule (no legal strategy, more devices than the cluster has, the bundled
/// runtime on GPUs), the bytes (nothing fits) or the time (nothing that fits takes less than
/// kLongestTimeline). Throws InputError where the plan would exceed the device's stated peak.
Plan search(const SearchRequest& request, const CostModel& costs);

/// Whether `devices` exceed what the cluster has: allowed and labelled for CPU cores, refused with
/// InfeasibleError for GPUs.
bool check_devices(const Cluster& cluster, std::int64_t devices);

}  // namespace plimsoll
