// Fits of collectives find what made-up timings were made with.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "fitting/fit_ops.h"
#include "models/presets/presets.h"
#include "simulator/costs/collective_cost.h"

namespace plimsoll {
namespace {

Cluster preset(const char* name) {
  return parse_cluster(*find_preset(cluster_presets(), name), name);
}

/// All-reduces within a node that reaches `fraction` of its links, with `latency` for a step.
std::vector<CollectiveMeasurement> made_with(Cluster cluster, double fraction, Seconds latency,
                                             std::vector<std::int64_t> group_sizes) {
  cluster.efficiency->levels[0].bandwidth_fraction = fraction;
  cluster.levels[0].latency = latency;
  std::vector<CollectiveMeasurement> points;
  for (const std::int64_t ranks : group_sizes) {
    std::vector<std::int64_t> group(std::size_t(ranks), 0);
    std::iota(group.begin(), group.end(), std::int64_t{0});
    for (std::int64_t mib = 1; mib <= 1024; mib *= 2) {
      CollectiveMeasurement& point = points.emplace_back();
      point.gpu = "A100-80GB";
      point.devices = {cluster.device.name};
      point.source = "this test";
      point.ranks = ranks;
      point.payload = Bytes(mib << 20);
      point.time = modelled_communication(point.kind, point.payload, cluster,
                                          spread_over(cluster.levels, group))
                       .time;
    }
  }
  return points;
}

const FittedValue& value(const OpFit& fit, std::string_view name) {
  return *std::ranges::find(fit.values, name, &FittedValue::name);
}

TEST(FitCollectives, FindTheRateAndTheLatencyOfALevel) {
  const Cluster cluster = preset("dgx-a100-80gb");
  const OpFit fit = fit_collectives(made_with(cluster, 0.6, Seconds(4e-6), {2, 4, 8}), cluster);
  EXPECT_EQ(fit.ops, 33);
  EXPECT_NEAR(value(fit, "levels.0.bandwidth_fraction").value, 0.6, 0.01);
  EXPECT_NEAR(value(fit, "levels.0.latency").value, 4e-6, 0.6e-6);
  ASSERT_EQ(fit.errors.size(), 1u);
  EXPECT_EQ(fit.errors[0].kind, "all_reduce");
  EXPECT_GT(fit.errors[0].median_before, 0.05);
  EXPECT_LT(fit.errors[0].median, 0.01);
  EXPECT_LT(fit.errors[0].unseen_median, 0.02);
  EXPECT_EQ(fit.sources, std::vector<std::string>{"this test"});
  const LevelEfficiency& level = fit.cluster.efficiency->levels[0];
  ASSERT_TRUE(level.fitted.has_value());
  EXPECT_EQ(level.fitted->from, Bytes(1 << 20));
  EXPECT_EQ(level.fitted->to, Bytes(1 << 30));
}

TEST(FitCollectives, GroupsOfOneSizeAreJudgedBySizesLeftOut) {
  const Cluster cluster = preset("dgx-a100-80gb");
  const OpFit fit = fit_collectives(made_with(cluster, 0.6, Seconds(2e-6), {8}), cluster);
  EXPECT_EQ(fit.ops, 11);
  EXPECT_LT(fit.errors.at(0).unseen_median, 0.02);
}

TEST(FitCollectives, TakeNothingOfOtherGpusAndOfOtherNodes) {
  const Cluster cluster = preset("dgx-a100-80gb");
  std::vector<CollectiveMeasurement> points = made_with(cluster, 0.6, Seconds(2e-6), {8});
  for (CollectiveMeasurement& point : points) point.devices = {"NVIDIA H100 SXM5 80GB"};
  EXPECT_THROW(fit_collectives(points, cluster), InfeasibleError);
  for (CollectiveMeasurement& point : points) point.gpu = cluster.device.name, point.ranks = 16;
  EXPECT_THROW(fit_collectives(points, cluster), InfeasibleError);
  Cluster plain = cluster;
  plain.efficiency.reset();
  EXPECT_THROW(fit_collectives(points, plain), InputError);
}

const std::string kRow = R"({
  "collective": "all_reduce", "ranks": 8, "hardware": {"gpu": "A100"}, "devices": ["NVIDIA A100 SXM4 80GB"],
  "source": {"repo_or_doc": "doc", "path_or_issue": "page"},
  "point_fields": ["size_bytes", "time_us_out_of_place", "algbw_GBps"],
  "points": [[1048576, 50, 1], [2097152, null, 1], [4194304, 80.5, 1]]})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(CollectiveMeasurements, AreReadFromTheirPoints) {
  const CollectiveMeasurements read = parse_collective_measurements("[" + kRow + "]", "c.json");
  ASSERT_EQ(read.points.size(), 2u);
  EXPECT_EQ(read.skipped, 0);
  EXPECT_EQ(read.points[1].payload, Bytes(4194304));
  EXPECT_DOUBLE_EQ(read.points[1].time.value(), 80.5e-6);
  EXPECT_EQ(read.points[1].source, "doc, page");
  EXPECT_EQ(read.points[1].devices, std::vector<std::string>{"NVIDIA A100 SXM4 80GB"});
  EXPECT_TRUE(is_collective_measurements("[" + kRow + "]", "c.json"));
  EXPECT_FALSE(is_collective_measurements(R"([{"op": "matmul"}])", "c.json"));
}

TEST(CollectiveMeasurements, SkipWhatDoesNotSayEnoughAndRefuseWhatIsWrong) {
  const auto skipped = [](const std::string& row) {
    return parse_collective_measurements("[" + row + "]", "c.json").skipped;
  };
  EXPECT_EQ(skipped(replaced(kRow, "\"ranks\": 8", "\"ranks\": null")), 1);
  EXPECT_EQ(skipped(replaced(kRow, "all_reduce", "moe_dispatch")), 1);
  EXPECT_EQ(skipped(replaced(kRow, "\"size_bytes\"", "\"size\"")), 1);
  EXPECT_THROW(skipped(replaced(kRow, "[1048576, 50, 1]", "[1048576]")), InputError);
  EXPECT_THROW(skipped(replaced(kRow, "1048576, 50", "-1, 50")), InputError);
  EXPECT_THROW(skipped(replaced(kRow, "1048576, 50", "1048576, \"fast\"")), InputError);
}

}  // namespace
}  // namespace plimsoll
