// Calibrate: measures this machine through a backend and the local communicator.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/schedule/sweep.h"
#include "calibrate/schedule/workload.h"
#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"
#include "runtime/backend.h"
#include "runtime/device_facts.h"
#include "runtime/processes.h"

namespace plimsoll {

struct CalibrationRequest {
  std::string backend = "cpu";
  SweepSize size = SweepSize::full;
  /// bf16 or f16: matmuls and the ops of layers are measured in this type too, within the budget.
  DType precision = DType::f32;
  /// Time to spend. The sweep is measured in order of importance spread over its range; what does
  /// not fit is left out and counted. What remains goes into a second pass, first to points that
  /// were unsteady or slower than the others make one expect: a point's two samples lie far apart
  /// in time, and the faster is kept, since other processes and other virtual machines only ever
  /// add time.
  Seconds budget{50};
  /// Where each finished test is written at once (of a cluster's processes by process 0); empty:
  /// nowhere. With `resume` what an earlier run has finished there is taken over.
  std::filesystem::path journal;
  bool resume = false;
  /// The work that the calibration is for. Points that stand for more of it come first; of one
  /// process in both passes, of a cluster's in the first.
  std::optional<Workload> workload;
  /// Called after each point: what is being measured, points done, of how many (both passes).
  std::function<void(const std::string& what, std::size_t done, std::size_t of)> progress;
};

struct MachineCalibration {
  Calibration calibration;
  Cluster cluster;
  std::size_t left_out = 0;  ///< points that the budget did not reach
  std::size_t restored = 0;  ///< tests that an earlier run had finished
  /// Hosts and ranks that were slower than the others, and whether clocks fell, in words.
  std::vector<std::string> outliers;
};

/// Throws EnvironmentError where the machine does not say what it is.
MachineCalibration calibrate(const CalibrationRequest& request);

/// A rank's device, and the backend that has it.
struct DeviceOfRank {
  Backend& backend;
  DeviceFacts facts;
};

/// Calibrates with the processes of a cluster, which all call it. The result is process 0's, and
/// empty on the others. What every rank measures (ops, matmuls) is the median rank's. With `device`
/// that of each process is measured, and what they exchange lies in the memory of devices: each
/// must have one of its own, all of one kind (UsageError).
MachineCalibration calibrate_processes(const CalibrationRequest& request, Processes& processes,
                                       const DeviceOfRank* device = nullptr);

/// A table for people: range of rates per kind, errors of the fits, dispatch, unsteady points.
std::string calibration_summary(const MachineCalibration& machine);

}  // namespace plimsoll
