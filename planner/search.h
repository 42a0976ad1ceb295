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
  std::function<void(std::int64_t done, std::int64_t of)> progress;
};

/// Least step time among the plans that fit; ties: fewer peak bytes, then canonical order. Throws
/// InfeasibleError with the rule (no legal strategy) or the bytes (nothing fits).
Plan search(const SearchRequest& request, const CostModel& costs);

}  // namespace plimsoll
