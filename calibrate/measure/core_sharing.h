// Core sharing: more processes on a machine than it has cores.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "calibrate/measure/rank_bench.h"
#include "models/calibration/calibration.h"
#include "runtime/processes.h"

namespace plimsoll {

/// On the machine with the most processes for a core that they may use. Hosts of one machine
/// (network namespaces, containers) are one: the kernel's boot id says so.
struct CoreSharing {
  std::int64_t processes = 1, cores = 1;
  /// How much longer an op takes when all processes compute than when it is not interrupted; 1
  /// where there are as many cores as processes.
  double times = 1;
};

/// All processes call it, and run `bench_case` for `horizon` where they share cores. Timings of
/// single ops do not show that: they are shorter than a turn of the scheduler, and their median is
/// of those that were not interrupted. What all did in a while does. The result is process 0's; at
/// most as many times as there are processes for a core: the rest is the doing of others.
CoreSharing measure_core_sharing(Processes& processes, RankBench& bench,
                                 const BenchCase& bench_case, Seconds horizon,
                                 std::chrono::milliseconds deadline);

/// Ops and products take that much longer; `versions` says so. Nothing where no cores are shared.
void apply(const CoreSharing& sharing, Calibration& calibration);

}  // namespace plimsoll
