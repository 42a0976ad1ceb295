// A calibration measures this machine through a backend and the local communicator.
#pragma once

#include <chrono>
#include <exception>
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
#include "runtime/processes.h"
#include "runtime/rank_device.h"

namespace plimsoll {

struct CalibrationRequest {
  std::string backend = "cpu";
  SweepSize size = SweepSize::full;
  /// bf16 or f16: matmuls and the ops of layers are also measured in this type, within the budget.
  DType precision = DType::f32;
  /// The time to spend. Points are measured in an order of importance that is spread over the
  /// sweep's range. Points that do not fit are left out and counted. Time that remains goes into a
  /// second pass, which begins with points that were unsteady or slower than the others suggest. A
  /// point's two samples lie far apart in time, and the faster one is kept, since other processes
  /// and virtual machines only ever add time.
  Seconds budget{50};
  /// The file to which each finished test is written at once (by process 0 of a cluster). Empty:
  /// none. With `resume`, tests that an earlier run finished there are taken over.
  std::filesystem::path journal;
  bool resume = false;
  /// The time that a process of a cluster waits for others.
  std::chrono::milliseconds deadline{120'000};
  /// The work for which the calibration is made. Points that stand for more of it come first: in
  /// both passes of one process, in the first pass of a cluster.
  std::optional<Workload> workload;
  /// Called after each point with the measured test, the number of points done, and their total
  /// over both passes.
  std::function<void(const std::string& what, std::size_t done, std::size_t of)> progress;
  /// Asked between tests, on each process. Once it returns true on any of them, all throw
  /// CalibrationStopped.
  std::function<bool()> stop;
};

/// The calibration has ended before its time, as `stop` asked. The journal has all finished tests.
class CalibrationStopped : public std::exception {
 public:
  const char* what() const noexcept override { return "the calibration was stopped"; }
};

struct MachineCalibration {
  Calibration calibration;
  Cluster cluster;
  std::size_t left_out = 0;  ///< points that the budget did not reach
  std::size_t restored = 0;  ///< tests that an earlier run had finished
  /// Describes hosts and ranks that were slower than the others, and drifts of clocks.
  std::vector<std::string> outliers;
};

/// Calibrates one machine. Throws EnvironmentError where the machine does not say what it is.
MachineCalibration calibrate(const CalibrationRequest& request);

/// A DeviceOfRank is a rank's device and the backend that has it.
struct DeviceOfRank {
  Backend& backend;
  DeviceFacts facts;
};

/// Calibrates with the processes of a cluster, which all call it. The result is process 0's, and
/// empty on the others. Ops and matmuls, which every rank measures, have the median rank's times.
/// With `device`, the device of each process is measured, and exchanged data lies in the memory of
/// devices. Each process must have a device of its own, all of one kind (UsageError).
MachineCalibration calibrate_processes(const CalibrationRequest& request, Processes& processes,
                                       const DeviceOfRank* device = nullptr);

/// Returns a table for people: the range of rates per kind, errors of the fits, dispatch, unsteady
/// points.
std::string calibration_summary(const MachineCalibration& machine);

}  // namespace plimsoll
