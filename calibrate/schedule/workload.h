// A workload is what the plans that a calibration is for will run; it decides which points matter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/schedule/schedule.h"
#include "models/calibration/calibration.h"
#include "plan/plan.h"

namespace plimsoll {

/// A Workload has the ops that ranks run in one step, for the chosen strategy of a plan and its
/// runners-up. Ops of one shape are listed once, with their number times their size.
struct Workload {
  struct Matmul {
    MatmulPoint point;  ///< the time is not set
    double flops = 0;
  };
  struct Memory {
    OpPoint point;
    double bytes = 0;
  };
  struct Communication {
    CollectivePoint point;
    double bytes = 0;  ///< with latency: each communication counts 64 KiB more than it moves
  };
  std::vector<Matmul> matmuls;
  std::vector<Memory> ops;
  std::vector<Communication> communications;
};

/// Returns the workload of a plan. Ranks fill the nodes in order, `plan.devices_per_node` on each.
Workload workload_of(const Plan& plan);

/// Returns the tests, and behind them the shapes of the workload's ops and products that they lack,
/// among kinds and types that they have. A measured shape needs no interpolation.
std::vector<CalibrationTest> with_shapes(const Workload& workload,
                                         std::vector<CalibrationTest> tests);

/// Returns how much of the workload each point stands for. Every shape counts for the points
/// nearest to it in logarithms, among points of its kind and type (products: of its form and type).
/// The largest weight is 1, and points that are near no shape have 0. With an empty workload all
/// weights are 1.
std::vector<double> weights(const Workload& workload, std::span<const MatmulPoint> points);
std::vector<double> weights(const Workload& workload, std::span<const OpPoint> points);
std::vector<double> weights(const Workload& workload, std::span<const CollectivePoint> points);
/// Returns such a weight for each test, among tests of its kind; 1 for tests that are no points.
std::vector<double> weights(const Workload& workload, std::span<const CalibrationTest> tests);

}  // namespace plimsoll
