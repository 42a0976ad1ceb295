// Contributions are merged into a median, and outliers counted.
#include "calibrate/sessions/contributions.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "base/error.h"
#include "calibrate/measure/statistics.h"

namespace plimsoll {
namespace {

std::vector<Seconds> medians(std::span<const Contribution> contributions) {
  std::vector<Seconds> values;
  for (const Contribution& one : contributions) values.push_back(one.sample.median);
  return values;
}

}  // namespace

Sample merged(std::span<const Contribution> contributions) {
  INVARIANT(!contributions.empty(), "somebody measures");
  std::vector<Seconds> spreads;
  Sample sample;
  for (const Contribution& one : contributions) {
    spreads.push_back(one.sample.spread);
    sample.samples += one.sample.samples;
  }
  const std::vector<Seconds> values = medians(contributions);
  sample.median = quantile(values, 0.5);
  sample.spread = std::max(quantile(spreads, 0.5), quantile(values, 0.75) - quantile(values, 0.25));
  sample.unsteady = sample.spread > kUnsteady * sample.median;
  return sample;
}

void Outliers::add_test(std::span<const Contribution> contributions) {
  if (contributions.size() < 3) return;
  const Seconds median = quantile(medians(contributions), 0.5);
  for (const Contribution& one : contributions) {
    auto at = std::find_if(seen_.begin(), seen_.end(),
                           [&](const Seen& seen) { return seen.who == one.who; });
    if (at == seen_.end()) at = seen_.insert(at, {one.who});
    ++at->tests;
    if (one.sample.median <= median * kSlower) continue;
    ++at->slower;
    at->times += one.sample.median / median;
  }
}

std::vector<std::string> Outliers::named() const {
  std::vector<std::string> words;
  for (const Seen& seen : seen_) {
    if (seen.slower == 0 || double(seen.slower) < kNamedFrom * double(seen.tests)) continue;
    words.push_back(fmt::format("{}: slower than the others in {} of {} tests, by {:.0f} %",
                                seen.who, seen.slower, seen.tests,
                                100 * (seen.times / double(seen.slower) - 1)));
  }
  return words;
}

void add_result(Calibration& to, const TestResult& result) {
  std::visit(
      [&](const auto& one) {
        using Point = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Point, CollectivePoint>) to.collectives.push_back(one);
        if constexpr (std::is_same_v<Point, OverlapPoint>) to.overlaps.push_back(one);
        if constexpr (std::is_same_v<Point, OpPoint>) to.ops.push_back(one);
        if constexpr (std::is_same_v<Point, MatmulPoint>) to.matmuls.push_back(one);
        if constexpr (std::is_same_v<Point, CommunicatorMemory>)
          to.communicator_memory.push_back(one);
        if constexpr (std::is_same_v<Point, DispatchCost>) {
          to.dispatch_op = one.op;
          to.dispatch_call = one.call;
        }
        if constexpr (std::is_same_v<Point, LaunchCost>) to.launch = one.time;
        if constexpr (std::is_same_v<Point, CopyPoint>) to.copies.push_back(one);
      },
      result);
}

Calibration as_calibration(const TestResult& result, const std::string& date) {
  Calibration only;
  only.date = date;
  add_result(only, result);
  return only;
}

TestResult result_in(const Calibration& only) {
  if (!only.collectives.empty()) return only.collectives.front();
  if (!only.overlaps.empty()) return only.overlaps.front();
  if (!only.ops.empty()) return only.ops.front();
  if (!only.matmuls.empty()) return only.matmuls.front();
  if (!only.communicator_memory.empty()) return only.communicator_memory.front();
  if (only.dispatch_op.samples > 0) return DispatchCost{only.dispatch_op, only.dispatch_call};
  if (only.launch) return LaunchCost{*only.launch};
  if (!only.copies.empty()) return only.copies.front();
  return std::monostate();
}

void put_in_order(Calibration& calibration) {
  std::stable_sort(calibration.collectives.begin(), calibration.collectives.end(),
                   [](const CollectivePoint& a, const CollectivePoint& b) {
                     return std::tuple(a.kind, a.nodes, a.ranks, a.groups_per_node, a.payload) <
                            std::tuple(b.kind, b.nodes, b.ranks, b.groups_per_node, b.payload);
                   });
  std::stable_sort(calibration.overlaps.begin(), calibration.overlaps.end(),
                   [](const OverlapPoint& a, const OverlapPoint& b) {
                     return std::tuple(a.compute, a.communication, a.nodes, a.payload) <
                            std::tuple(b.compute, b.communication, b.nodes, b.payload);
                   });
  const auto key = [](const OpPoint& point) {
    return std::tuple(point.kind, point.dtype, point.row, point.moved);
  };
  std::stable_sort(calibration.ops.begin(), calibration.ops.end(),
                   [&](const OpPoint& a, const OpPoint& b) { return key(a) < key(b); });
  // Kinds of a fixed size, or with few large rows, come out of the sweep at equal sizes.
  calibration.ops.erase(
      std::unique(calibration.ops.begin(), calibration.ops.end(),
                  [&](const OpPoint& a, const OpPoint& b) { return key(a) == key(b); }),
      calibration.ops.end());
}

}  // namespace plimsoll
