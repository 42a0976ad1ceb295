// Leaves out the points of a calibration one by one.
#include "planner/explain/measured_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "simulator/costs/matmul_curves.h"
#include "simulator/costs/size_curve.h"

namespace plimsoll {
namespace {

struct SizedPoint {
  Bytes size;
  Sample time;
};

double relative_spread(const Sample& time) { return time.spread / time.median; }

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Returns the curve of points at several sizes, which come in any order.
MeasuredCurve sized_curve(const std::string& what, std::vector<SizedPoint> points) {
  std::ranges::stable_sort(points, {}, &SizedPoint::size);
  MeasuredCurve curve{what, std::int64_t(points.size()), 0, {}};
  std::vector<double> spreads;
  for (std::size_t left = 0; left < points.size(); ++left) {
    spreads.push_back(relative_spread(points[left].time));
    if (left == 0 || left + 1 == points.size()) continue;
    SizeCurve others;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i != left) others.add(points[i].size, points[i].time);
    }
    curve.left_out.push_back(others.at(points[left].size).time / points[left].time.median);
  }
  curve.spread = median_of(std::move(spreads));
  std::ranges::sort(curve.left_out);
  return curve;
}

std::string form_words(const MatmulPoint& point) {
  std::string words = fmt::format("matmul {}", to_text(point.dtype));
  if (point.shape.batch > 1) words += ", batched";
  if (point.transpose_a) words += ", left transposed";
  if (point.transpose_b) words += ", right transposed";
  if (point.accumulate) words += ", accumulating";
  if (point.bias) words += ", with bias";
  return words;
}

/// The bandwidth of the memory is a part of the roofline to which curves are relative. Any sensible
/// one will do, because the curves fit what is left.
BytesPerSecond bandwidth_of(const Calibration& calibration) {
  double most = 0;
  for (const OpPoint& point : calibration.ops)
    most = std::max(most, double(point.moved.count()) / point.time.median.value());
  return BytesPerSecond(most > 0 ? most : 1e12);
}

void add_matmuls(const Calibration& calibration, std::vector<MeasuredCurve>& curves) {
  const std::vector<MatmulPoint>& points = calibration.matmuls;
  std::map<std::string, std::vector<std::size_t>> forms;
  for (std::size_t i = 0; i < points.size(); ++i) forms[form_words(points[i])].push_back(i);
  for (const auto& [what, form] : forms) {
    MeasuredCurve curve{what, std::int64_t(form.size()), 0, {}};
    std::vector<double> spreads;
    for (const std::size_t left : form) {
      const MatmulPoint& point = points[left];
      spreads.push_back(relative_spread(point.time));
      if (form.size() == 1) continue;
      MatmulCurves others(bandwidth_of(calibration));
      for (const std::size_t i : form) {
        if (i != left) others.add(points[i]);
      }
      const MatmulForm key{point.transpose_a, point.transpose_b,     point.accumulate,
                           point.bias,        point.shape.batch > 1, point.dtype};
      curve.left_out.push_back(others.at(point.shape, key).time / point.time.median);
    }
    curve.spread = median_of(std::move(spreads));
    std::ranges::sort(curve.left_out);
    curves.push_back(std::move(curve));
  }
}

}  // namespace

MeasuredMachine measured_machine(const Calibration& calibration) {
  MeasuredMachine machine{
      calibration.device, calibration.backend, calibration.date, calibration.versions, {}};
  add_matmuls(calibration, machine.curves);
  std::map<std::string, std::vector<SizedPoint>> ops, collectives;
  for (const OpPoint& point : calibration.ops) {
    std::string what = fmt::format("{} {}", to_text(point.kind), to_text(point.dtype));
    if (point.row > 0) what += fmt::format(", rows of {}", point.row);
    ops[what].push_back({point.moved, point.time});
  }
  for (const CollectivePoint& point : calibration.collectives) {
    std::string what = describe(point);
    if (adds_up(point.kind)) what += fmt::format(" {}", to_text(point.dtype));
    if (point.communicator != calibration.communicator)
      what += fmt::format(", by {}", to_text(point.communicator));
    collectives[what].push_back({point.payload, point.time});
  }
  for (auto* curves : {&ops, &collectives}) {
    for (auto& [what, points] : *curves)
      machine.curves.push_back(sized_curve(what, std::move(points)));
  }
  return machine;
}

}  // namespace plimsoll
