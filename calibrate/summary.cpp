// What a calibration found, for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "calibrate/calibrate.h"

namespace plimsoll {
namespace {

/// Slowest and fastest rate of some points.
struct Range {
  double low = 0, high = 0;
  std::size_t points = 0, unsteady = 0;

  void add(double rate, bool is_unsteady) {
    low = points == 0 ? rate : std::min(low, rate);
    high = std::max(high, rate);
    ++points;
    unsteady += is_unsteady;
  }
};

template <class Rate>
std::string line(std::string_view what, const Range& range) {
  return fmt::format("{:26}{:>8}{:>16}{:>16}{:>10}\n", what, range.points, to_text(Rate(range.low)),
                     to_text(Rate(range.high)), range.unsteady);
}

}  // namespace

std::string calibration_summary(const MachineCalibration& machine) {
  const Calibration& calibration = machine.calibration;
  std::string text = fmt::format("{}, {} cores, backend {}\n", calibration.device,
                                 calibration.busy_cores, calibration.backend);
  text +=
      fmt::format("{:26}{:>8}{:>16}{:>16}{:>10}\n", "", "points", "slowest", "fastest", "unsteady");
  Range matmuls;
  for (const MatmulPoint& point : calibration.matmuls) {
    matmuls.add((flops_of(point.shape) / point.time.median).value(), point.time.unsteady);
  }
  text += line<FlopsPerSecond>("matmul", matmuls);
  std::map<OpKind, Range> kinds;
  for (const OpPoint& point : calibration.ops) {
    kinds[point.kind].add((point.moved / point.time.median).value(), point.time.unsteady);
  }
  for (const auto& [kind, range] : kinds) text += line<BytesPerSecond>(to_text(kind), range);
  std::map<std::pair<OpKind, std::int64_t>, Range> collectives;
  for (const CollectivePoint& point : calibration.collectives) {
    collectives[{point.kind, point.ranks}].add((point.payload / point.time.median).value(),
                                               point.time.unsteady);
  }
  for (const auto& [key, range] : collectives) {
    text += line<BytesPerSecond>(fmt::format("{} of {}", to_text(key.first), key.second), range);
  }
  text += fmt::format("dispatch: {} per op, {} per call\n", to_text(calibration.dispatch_op.median),
                      to_text(calibration.dispatch_call.median));
  text += fmt::format("a rank that waits longer than {} sleeps, and wakes up {} late\n",
                      to_text(calibration.sleeps_after), to_text(calibration.wake_up.median));
  text += fmt::format("peak {}, memory {} per core\n", to_text(*machine.cluster.device.peak_fp32),
                      to_text(machine.cluster.device.memory_bandwidth));
  if (machine.left_out > 0) {
    text += fmt::format("{} points were left out: the budget ended\n", machine.left_out);
  }
  return text;
}

}  // namespace plimsoll
