// The summary of a calibration, for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/describe/fit_errors.h"
#include "calibrate/sessions/calibrate.h"

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

/// A point that no repetition made steady.
struct Unsteady {
  double relative = 0;  ///< half the spread over the median
  std::string line;
};

template <class Point, class Describe>
void add_unsteady(const std::vector<Point>& points, Describe describe, std::vector<Unsteady>& to) {
  for (const Point& point : points) {
    if (!point.time.unsteady) continue;
    const double relative = point.time.spread / point.time.median / 2;
    to.push_back({relative, fmt::format("  {}: {} +- {:.0f} %\n", describe(point),
                                        to_text(point.time.median), 100 * relative)});
  }
}

/// The least steady points; all of them are marked in the file.
std::string unsteady_points(const Calibration& calibration) {
  constexpr std::size_t kMostLines = 10;
  std::vector<Unsteady> points;
  const auto matmul = [](const MatmulPoint& point) {
    const MatmulShape& shape = point.shape;
    return fmt::format("matmul {} x {}x{}x{}{}{}", shape.batch, shape.m, shape.n, shape.k,
                       point.transpose_a ? " a^T" : "", point.transpose_b ? " b^T" : "");
  };
  const auto op = [](const OpPoint& point) {
    return fmt::format("{} of {}", to_text(point.kind), to_text(point.moved));
  };
  const auto collective = [](const CollectivePoint& point) {
    return fmt::format("{}, {}", describe(point), to_text(point.payload));
  };
  add_unsteady(calibration.matmuls, matmul, points);
  add_unsteady(calibration.ops, op, points);
  add_unsteady(calibration.collectives, collective, points);
  std::stable_sort(points.begin(), points.end(),
                   [](const Unsteady& a, const Unsteady& b) { return a.relative > b.relative; });
  if (points.empty()) return "every point is steady\n";
  std::string text = fmt::format("{} unsteady points, the least steady:\n", points.size());
  for (std::size_t i = 0; i < std::min(kMostLines, points.size()); ++i) text += points[i].line;
  return text;
}

std::string fit_error_lines(const MachineCalibration& machine) {
  std::string text = fmt::format("{:26}{:>8}{:>16}{:>16}\n", "fit, leaving one out", "points",
                                 "median error", "90th percentile");
  for (const FitError& error :
       fit_errors(machine.calibration, machine.cluster.device.memory_bandwidth)) {
    text += fmt::format("{:26}{:>8}{:>14.1f} %{:>14.1f} %\n", error.what, error.points,
                        100 * error.median, 100 * error.worst_tenth);
  }
  return text;
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
  std::vector<std::pair<std::string, Range>> collectives;
  for (const CollectivePoint& point : calibration.collectives) {
    const std::string what = describe(point);
    if (collectives.empty() || collectives.back().first != what) collectives.push_back({what, {}});
    collectives.back().second.add((point.payload / point.time.median).value(), point.time.unsteady);
  }
  for (const auto& [what, range] : collectives) text += line<BytesPerSecond>(what, range);
  text += fit_error_lines(machine) + unsteady_points(calibration);
  text += fmt::format("dispatch: {} per op, {} per call\n", to_text(calibration.dispatch_op.median),
                      to_text(calibration.dispatch_call.median));
  text += fmt::format("a rank that waits longer than {} sleeps, and wakes up {} late\n",
                      to_text(calibration.sleeps_after), to_text(calibration.wake_up.median));
  text += fmt::format("peak {}, memory {} per core\n", to_text(*machine.cluster.device.peak_fp32),
                      to_text(machine.cluster.device.memory_bandwidth));
  for (const OverlapPoint& point : calibration.overlaps) {
    text +=
        fmt::format("{} during {} of {} over {} nodes: slowed {:.2f} and {:.2f} times\n",
                    to_text(point.compute), to_text(point.communication), to_text(point.payload),
                    point.nodes, point.compute_slowdown, point.communication_slowdown);
  }
  for (const std::string& outlier : machine.outliers) text += outlier + "\n";
  if (machine.restored > 0) {
    text += fmt::format("{} tests were taken from an earlier run\n", machine.restored);
  }
  if (machine.left_out > 0) {
    text += fmt::format("{} points were left out: the budget ended\n", machine.left_out);
  }
  return text;
}

}  // namespace plimsoll
