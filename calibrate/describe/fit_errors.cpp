// Errors are found by leaving out one point at a time.
#include "calibrate/describe/fit_errors.h"

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "calibrate/measure/statistics.h"
#include "simulator/costs/matmul_curves.h"
#include "simulator/costs/size_curve.h"

namespace plimsoll {
namespace {

MatmulForm form_of(const MatmulPoint& point) {
  return {point.transpose_a, point.transpose_b,     point.accumulate,
          point.bias,        point.shape.batch > 1, point.dtype};
}

/// Points of equal key lie on one curve.
template <class Point, class Key, class Size>
LeftOutErrors along_curves(const std::vector<Point>& points, Key key, Size size) {
  std::map<decltype(key(points[0])), std::vector<std::size_t>> curves;
  for (std::size_t i = 0; i < points.size(); ++i) curves[key(points[i])].push_back(i);
  LeftOutErrors errors(points.size());
  for (const auto& [unused, members] : curves) {
    for (std::size_t left_out : members) {
      SizeCurve curve;
      for (std::size_t i : members) {
        if (size(points[i]) != size(points[left_out])) curve.add(size(points[i]), points[i].time);
      }
      if (curve.empty()) continue;
      const Estimate estimate = curve.at(size(points[left_out]));
      if (estimate.provenance != Provenance::interpolated) continue;
      errors[left_out] = points[left_out].time.median / estimate.time - 1;
    }
  }
  return errors;
}

/// A Collector adds the magnitude of each point's error to its kind's.
class Collector {
 public:
  void add(const std::string& what, std::optional<double> error) {
    if (!error) return;
    if (kinds_.empty() || kinds_.back().first != what) kinds_.push_back({what, {}});
    kinds_.back().second.push_back(std::abs(*error));
  }
  std::vector<FitError> result() const {
    std::vector<FitError> errors;
    for (const auto& [what, magnitudes] : kinds_) {
      errors.push_back(
          {what, magnitudes.size(), quantile(magnitudes, 0.5), quantile(magnitudes, 0.9)});
    }
    return errors;
  }

 private:
  std::vector<std::pair<std::string, std::vector<double>>> kinds_;
};

}  // namespace

LeftOutErrors left_out_errors(const std::vector<MatmulPoint>& points,
                              BytesPerSecond memory_bandwidth) {
  std::map<MatmulForm, int> of_form;
  for (const MatmulPoint& point : points) ++of_form[form_of(point)];
  LeftOutErrors errors(points.size());
  for (std::size_t left_out = 0; left_out < points.size(); ++left_out) {
    const MatmulPoint& point = points[left_out];
    if (of_form[form_of(point)] < 2) continue;
    MatmulCurves curves(memory_bandwidth);
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i != left_out) curves.add(points[i]);
    }
    errors[left_out] = point.time.median / curves.at(point.shape, form_of(point)).time - 1;
  }
  return errors;
}

LeftOutErrors left_out_errors(const std::vector<OpPoint>& points) {
  return along_curves(
      points, [](const OpPoint& point) { return std::tuple(point.kind, point.dtype, point.row); },
      [](const OpPoint& point) { return point.moved; });
}

LeftOutErrors left_out_errors(const std::vector<CollectivePoint>& points) {
  return along_curves(
      points,
      [](const CollectivePoint& point) {
        return std::tuple(point.kind, point.ranks, point.nodes, point.groups_per_node,
                          point.communicator);
      },
      [](const CollectivePoint& point) { return point.payload; });
}

std::vector<FitError> fit_errors(const Calibration& calibration, BytesPerSecond memory_bandwidth) {
  Collector collector;
  for (const auto& error : left_out_errors(calibration.matmuls, memory_bandwidth)) {
    collector.add("matmul", error);
  }
  const LeftOutErrors ops = left_out_errors(calibration.ops);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    collector.add(std::string(to_text(calibration.ops[i].kind)), ops[i]);
  }
  const LeftOutErrors collectives = left_out_errors(calibration.collectives);
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const CollectivePoint& point = calibration.collectives[i];
    collector.add(describe(point), collectives[i]);
  }
  return collector.result();
}

}  // namespace plimsoll
