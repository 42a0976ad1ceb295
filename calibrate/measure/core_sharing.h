// Core sharing measures the slowdown where a machine runs more processes than it has cores.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "calibrate/measure/rank_bench.h"
#include "models/calibration/calibration.h"
#include "runtime/processes.h"

namespace plimsoll {

/// A CoreSharing is for the machine with the most processes for each core that they may use. Hosts
/// of one machine (network namespaces, containers) count as one, which the kernel's boot id shows.
struct CoreSharing {
  std::int64_t processes = 1, cores = 1;
  /// The time of an op when all processes compute, relative to its time when it is not interrupted.
  /// It is 1 where there are as many cores as processes.
  double times = 1;
};

/// All processes call it, and run `bench_case` for `horizon` where they share cores. Timings of
/// single ops do not show sharing: ops are shorter than a turn of the scheduler, so the median op
/// is not interrupted. The number of ops that all processes run in `horizon` shows it. The result
/// is process 0's. It is at most the number of processes for each core, since a larger slowdown has
/// other causes.
CoreSharing measure_core_sharing(Processes& processes, RankBench& bench,
                                 const BenchCase& bench_case, Seconds horizon,
                                 std::chrono::milliseconds deadline);

/// Multiplies the times of ops and products by it, and says so in `versions`. It changes nothing
/// where no cores are shared.
void apply(const CoreSharing& sharing, Calibration& calibration);

}  // namespace plimsoll
