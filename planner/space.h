// Space: the legal strategies of a job on some devices, in a fixed order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/job.h"
#include "passes/strategy.h"
#include "plan/plan.h"

namespace plimsoll {

/// Of one request: more than any cluster has, and what a degree of a strategy may be.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;

/// KEY=VALUE pairs from --fix, applied to every candidate.
using Fixed = std::vector<std::pair<std::string, std::string>>;

struct Space {
  std::vector<Strategy> legal;  ///< canonical order: the order ties are broken by
  std::int64_t enumerated = 0;  ///< candidates before the rules
  std::vector<Pruned>
      rejected;              ///< by rule: reasons with their numbers replaced by N, first met first
  std::string first_reason;  ///< of the first rejected candidate, with its numbers
};

/// mp, pp, dp, sharding degree (stage 1 when > 1), micro-batch: all divisors; recompute none/full;
/// gradient bucket bytes: a ladder of four where gradients cross ranks (batch width > 1), else the
/// default alone. Fields of `fixed` take only that value. Throws UsageError for devices outside 1
/// to kMostDevices, an unknown key (naming the nearest) or a bad value.
Space enumerate(const Job& job, std::int64_t devices, const Fixed& fixed);

}  // namespace plimsoll
