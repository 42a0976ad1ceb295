// Workload: what the plans that a calibration is for will run, and so which of its points matter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/schedule/schedule.h"
#include "models/calibration/calibration.h"
#include "plan/plan.h"

namespace plimsoll {

/// The ops that ranks run in one step, over the chosen strategy of a plan and its runners-up: ops
/// of one shape once, with their number times their size.
struct Workload {
  struct Matmul {
    MatmulPoint point;  ///< all but the time
    double flops = 0;
  };
  struct Memory {
    OpPoint point;
    double bytes = 0;
  };
  struct Communication {
    CollectivePoint point;
    double bytes = 0;  ///< with latency: a communication counts as 64 KiB more than it moves
  };
  std::vector<Matmul> matmuls;
  std::vector<Memory> ops;
  std::vector<Communication> communications;
};

/// Ranks fill the nodes in order, `plan.devices_per_node` on each.
Workload workload_of(const Plan& plan);

/// How much of the workload each point stands for: every shape counts for the points nearest to it
/// in logarithms, of its kind (products: of its form; both: of its type). The largest is 1; without
/// any nearness to the workload 0. An empty workload makes all 1.
std::vector<double> weights(const Workload& workload, std::span<const MatmulPoint> points);
std::vector<double> weights(const Workload& workload, std::span<const OpPoint> points);
std::vector<double> weights(const Workload& workload, std::span<const CollectivePoint> points);
/// Returns such a weight for each test, among tests of its kind; 1 for tests that are no points.
std::vector<double> weights(const Workload& workload, std::span<const CalibrationTest> tests);

}  // namespace plimsoll
