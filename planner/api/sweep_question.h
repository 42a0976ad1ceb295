// Sweep question: a sweep as options name it, and its answer. The command line and the Python
// module ask the same.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "passes/strategy/constraints.h"
#include "planner/api/target.h"
#include "planner/sweep/sweep.h"

namespace plimsoll {

/// Asks for the best plan at each of many points, which are all combinations of the lists.
struct SweepQuestion {
  TargetOptions target;  ///< job, calibration and texts; the others are lists
  std::vector<std::string> clusters;
  std::vector<std::string> frameworks;                   ///< empty: the usual one of each cluster
  std::vector<std::string> devices, batches, sequences;  ///< as parse_numbers() takes them
  std::vector<std::string> networks;                     ///< as parse_networks() takes them
  std::string tokens, deadline;                          ///< empty: none
  std::vector<std::string> prices;                       ///< as parse_price() takes them
  Constraints constraints;
  Bytes reserve = kDefaultReserve;
  std::optional<Seconds> time_limit, point_time_limit;
  std::int64_t threads = 0;
  std::function<bool()> stop{};                                      ///< as in SweepRequest
  std::function<void(std::size_t done, std::size_t of)> progress{};  ///< as in SweepRequest
};

/// Reads what the question names, all before the first search, and makes the sweep. Throws
/// UsageError and InputError.
Sweep sweep_job(const SweepQuestion& question);

}  // namespace plimsoll
