// Durations of tests are simulated here.
#include "calibrate/schedule/schedule_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "base/json.h"
#include "simulator/costs/collective_cost.h"

namespace plimsoll {
namespace {

/// These numbers are those of calibrate.cpp.
constexpr std::int64_t kSamples = 7, kWarmUp = 2, kRounds = 2;
constexpr Bytes kFootprint{std::int64_t{32} << 20};
/// The time of one test: the median of the journal, rounded up.
constexpr Seconds kMatmulTest{0.07}, kOpTest{0.025}, kDispatchTest{0.2}, kMemoryTest{0.005};
/// Forming communicators takes a few exchanges between all ranks, and work on each.
constexpr Seconds kGroups{0.01};
/// A measurement over NCCL connects two communicators, one of them over all ranks. This time is
/// assumed. All else about devices is assumed as well: their operands' size and the times of their
/// tests are those of cores.
constexpr Seconds kConnect{2.0};
constexpr Seconds kLaunchTest{0.1}, kCopyTest{0.1};
constexpr std::size_t kLineBytes = 500;  // of a journal, measured

/// Ranks of the first group of a shape, ascending: `ranks / nodes` on each of the first `nodes`.
std::vector<std::int64_t> ranks_of(const CollectivePoint& point, std::int64_t per_node) {
  std::vector<std::int64_t> ranks;
  const std::int64_t on_each = point.ranks / point.nodes;
  for (std::int64_t node = 0; node < point.nodes; ++node) {
    for (std::int64_t i = 0; i < on_each; ++i) ranks.push_back(node * per_node + i);
  }
  return ranks;
}

/// Returns the time of one communication of a group alone.
Seconds time_of(const CollectivePoint& point, const Cluster& cluster) {
  const std::vector<std::int64_t> ranks = ranks_of(point, cluster.devices_per_node);
  const GroupSpread spread = spread_over(cluster.levels, ranks);
  return modelled_communication(point.kind, point.payload, cluster, spread).time;
}

/// Returns the time in which all ranks synchronise.
Seconds meeting(const Cluster& cluster, std::int64_t ranks) {
  const Seconds latency = cluster.levels.empty() ? Seconds(1e-6) : cluster.levels.back().latency;
  return latency * (2 * std::ceil(std::log2(double(std::max<std::int64_t>(2, ranks)))));
}

Seconds sample_of(const CollectivePoint& point, const Cluster& cluster, std::int64_t world) {
  const Seconds produced = (point.payload * 2 + kFootprint) / cluster.device.memory_bandwidth;
  return time_of(point, cluster) + produced + meeting(cluster, world);
}

Seconds communication_test(const CollectivePoint& point, const Cluster& cluster, SweepSize size,
                           std::int64_t world) {
  const bool often = point.payload <= Bytes(1 << 20) && size == SweepSize::full;
  const std::int64_t samples = kWarmUp + (often ? 4 * kSamples : kSamples);
  const std::int64_t rounds = size == SweepSize::full ? kRounds : 1;
  return kGroups + meeting(cluster, world) * 4 +
         sample_of(point, cluster, world) * double(samples * rounds);
}

struct Cost {
  const Cluster& cluster;
  SweepSize size;
  std::int64_t world;

  Seconds operator()(const DispatchTest&) const { return kDispatchTest; }
  Seconds operator()(const CommunicatorMemoryTest& test) const {
    const bool devices = test.shape.communicator == CommunicatorKind::nccl;
    return (devices ? kConnect : kGroups) + kMemoryTest;
  }
  Seconds operator()(const CollectivePoint& point) const {
    return communication_test(point, cluster, size, world);
  }
  Seconds operator()(const OverlapTest& test) const {
    const CollectivePoint& point = test.communication;
    const Seconds beside = time_of(point, cluster) * 4 + Seconds(2e-3);
    return communication_test(point, cluster, size, world) +
           (sample_of(point, cluster, world) + beside) * double(1 + kSamples);
  }
  Seconds operator()(const OpPoint&) const { return kOpTest; }
  Seconds operator()(const MatmulPoint&) const { return kMatmulTest; }
  Seconds operator()(const LaunchTest&) const { return kLaunchTest; }
  Seconds operator()(const CopyPoint&) const { return kCopyTest; }
};

constexpr std::array<const char*, std::variant_size_v<TestSubject>> kParts = {
    "dispatch",
    "memory of communicators",
    "collectives and transfers",
    "overlaps",
    "memory-bound ops",
    "matmuls",
    "launches",
    "copies"};

/// NCCL's communicators are kept: the first test over a grid connects them.
class Connections {
 public:
  Seconds before(const CalibrationTest& test) {
    const auto* point = std::get_if<CollectivePoint>(&test.subject);
    if (const auto* overlap = std::get_if<OverlapTest>(&test.subject)) {
      point = &overlap->communication;
    }
    if (point == nullptr || point->communicator != CommunicatorKind::nccl) return Seconds(0);
    return known_.emplace(point->kind == OpKind::send, point->ranks, point->nodes).second
               ? kConnect
               : Seconds(0);
  }

 private:
  std::set<std::tuple<bool, std::int64_t, std::int64_t>> known_;
};

struct Totals {
  std::vector<CalibrationTest> tests;
  std::vector<SchedulePart> parts;
  SchedulePart all;
  std::size_t reached = 0;  ///< tests within the budget, essential ones in any case
};

Totals totals_of(const ClusterShape& shape, const Cluster& cluster, SweepSize size, DType precision,
                 Seconds budget, CommunicatorKind communicator) {
  Totals totals;
  totals.tests = schedule(shape, size, precision, communicator);
  totals.parts = schedule_parts(totals.tests, cluster, size);
  totals.all.what = "all";
  for (const SchedulePart& part : totals.parts) {
    totals.all.tests += part.tests;
    totals.all.essential += part.essential;
    totals.all.time += part.time;
    totals.all.essential_time += part.essential_time;
  }
  const double left = std::max(0.0, (budget - totals.all.essential_time).value());
  const double rest = (totals.all.time - totals.all.essential_time).value();
  const double part = rest > 0 ? std::min(1.0, left / rest) : 1;
  totals.reached =
      totals.all.essential + std::size_t(part * double(totals.all.tests - totals.all.essential));
  return totals;
}

}  // namespace

Seconds simulated_time(const CalibrationTest& test, const Cluster& cluster, SweepSize size) {
  const std::int64_t world = cluster.nodes.value_or(1) * cluster.devices_per_node;
  return std::visit(Cost{cluster, size, world}, test.subject);
}

std::vector<SchedulePart> schedule_parts(std::span<const CalibrationTest> tests,
                                         const Cluster& cluster, SweepSize size) {
  std::vector<SchedulePart> parts;
  for (const char* what : kParts) parts.push_back({what, 0, 0, Seconds(0), Seconds(0)});
  Connections connections;
  for (const CalibrationTest& test : tests) {
    SchedulePart& part = parts[test.subject.index()];
    const Seconds time = connections.before(test) + simulated_time(test, cluster, size);
    ++part.tests;
    part.time += time;
    if (!test.essential) continue;
    ++part.essential;
    part.essential_time += time;
  }
  return parts;
}

std::string schedule_text(const ClusterShape& shape, const Cluster& cluster, SweepSize size,
                          DType precision, Seconds budget, CommunicatorKind communicator) {
  const Totals totals = totals_of(shape, cluster, size, precision, budget, communicator);
  std::string text = fmt::format("{} ranks on {} nodes of {}: {} group shapes\n",
                                 shape.nodes * shape.ranks_per_node, shape.nodes, cluster.name,
                                 group_shapes(shape).size() + transfer_shapes(shape).size());
  text += fmt::format("{:<28}{:>8}{:>12}{:>12}{:>12}\n", "simulated", "tests", "time", "essential",
                      "time");
  const auto add = [&](const SchedulePart& part) {
    text += fmt::format("{:<28}{:>8}{:>10.0f} s{:>12}{:>10.0f} s\n", part.what, part.tests,
                        part.time.value(), part.essential, part.essential_time.value());
  };
  for (const SchedulePart& part : totals.parts) {
    if (part.tests > 0) add(part);
  }
  add(totals.all);
  text += fmt::format("a budget of {:.0f} s reaches {} tests; one journal of {}\n", budget.value(),
                      totals.reached, to_text(Bytes(std::int64_t(totals.reached * kLineBytes))));
  return text;
}

std::string schedule_json(const ClusterShape& shape, const Cluster& cluster, SweepSize size,
                          DType precision, Seconds budget, CommunicatorKind communicator) {
  const Totals totals = totals_of(shape, cluster, size, precision, budget, communicator);
  Json parts = Json::array();
  for (const SchedulePart& part : totals.parts) {
    parts.push_back({{"what", part.what},
                     {"tests", part.tests},
                     {"time_s", part.time.value()},
                     {"essential", part.essential},
                     {"essential_time_s", part.essential_time.value()}});
  }
  Json keys = Json::array();
  for (const CalibrationTest& test : totals.tests) keys.push_back(test.key);
  return json_text({{"ranks", shape.nodes * shape.ranks_per_node},
                    {"nodes", shape.nodes},
                    {"tests", totals.all.tests},
                    {"time_s", totals.all.time.value()},
                    {"reached", totals.reached},
                    {"parts", parts},
                    {"keys", keys}});
}

}  // namespace plimsoll
