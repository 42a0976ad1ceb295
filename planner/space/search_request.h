// A request to search: the job, its devices, what is held, and how long to look.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "models/cluster/cluster.h"
#include "planner/space/space.h"

namespace plimsoll {

enum class SearchMethod : std::uint8_t {
  branch_and_bound,
  brute_force,  ///< evaluates all that is legal; the same answer, for tests
};

/// The clock holds far more; nobody waits that long.
inline constexpr Seconds kLongestTimeLimit{1e6};

struct SearchRequest {
  Job job;
  Framework framework;
  std::int64_t devices = 0;
  Fixed fixed;
  Bytes reserve;
  std::string cluster_digest, calibration_digest;
  SearchMethod method = SearchMethod::branch_and_bound;
  /// Candidates evaluated at once; 0 = as many as the machine has cores. The plan does not depend
  /// on it.
  std::int64_t threads = 0;
  /// The chosen plan is proven best. Runners-up and the front are proven to this share of a step:
  /// no plan that would take the place of one of them is faster by more.
  double tolerance = 0.02;
  /// Wall-clock time, at most kLongestTimeLimit, after which no bound and no evaluation is begun;
  /// the first plan, which is found before all bounds, is looked for to the end of one try. The
  /// plan that is found then depends on the machine.
  std::optional<Seconds> time_limit;
  /// Asked from time to time; the search ends as at a time limit once it says yes.
  std::function<bool()> stop;
  /// Called after each round by one thread: legal strategies that are done with, never fewer than
  /// before, of how many.
  std::function<void(std::int64_t done, std::int64_t of)> progress;
};

/// "1 device", "8 devices".
std::string devices_text(std::int64_t devices);

/// Whether `devices` exceed what the cluster has: allowed and labelled for CPU cores, refused with
/// InfeasibleError for GPUs.
bool check_devices(const Cluster& cluster, std::int64_t devices);

}  // namespace plimsoll
