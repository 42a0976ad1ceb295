// Each change that is named as enough for a job to fit makes a plan.
#include "planner/refusal/least_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "passes/strategy/rank_orders.h"
#include "planner/explore/explore.h"
#include "planner/search/search.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

SearchRequest request_of(std::int64_t devices, Fixed fixed = {}) {
  SearchRequest request;
  request.job = nano_job();
  request.framework = bundled_framework();
  request.devices = devices;
  request.fixed = std::move(fixed);
  request.time_limit = Seconds(600);  // however slow the machine
  return request;
}

Cluster cluster_of(Bytes memory) {
  Cluster cluster = small_cluster();
  cluster.device.memory = memory;
  return cluster;
}

/// The changes that are named; none where something fits.
std::vector<std::string> changes_of(const SearchRequest& request, const Cluster& cluster) {
  try {
    search(request, small_costs(cluster));
  } catch (const NothingFits& refused) {
    return refused.changes();
  }
  return {};
}

std::string line_with(const std::vector<std::string>& lines, const std::string& words) {
  const auto at = std::ranges::find_if(
      lines, [&](const std::string& line) { return line.find(words) != std::string::npos; });
  return at == lines.end() ? "" : *at;
}

/// Returns the memory that the strategy of least need takes.
Bytes least_need(const SearchRequest& request) {
  const Space space = enumerate(request.job, request.framework, request.devices, request.fixed);
  Bytes least(std::numeric_limits<std::int64_t>::max());
  for (const Strategy& strategy : space.legal) {
    const Footprint footprint = lay_out(request.job, strategy, request.framework, small_cluster(),
                                        request.reserve, Proof::none);
    const Bytes outside = memory_outside_program(request.job, strategy, request.framework);
    least = std::min(least, footprint.reserved + outside);
  }
  return least;
}

TEST(LeastChanges, TheMemoryThatIsNamedIsTheLeastOfAllStrategies) {
  for (const std::int64_t devices : {1, 2, 4}) {
    SearchRequest request = request_of(devices);
    request.reserve = Bytes(1000);
    const Bytes enough = least_need(request) + request.reserve;
    const auto lines = changes_of(request, cluster_of(enough - Bytes(1)));
    const std::string named = std::to_string(enough.count()) + " bytes";
    EXPECT_NE(line_with(lines, named), "") << devices << ": " << named;
    EXPECT_NE(line_with(lines, "--reserve \"999 B\""), "");
    EXPECT_TRUE(changes_of(request, cluster_of(enough)).empty()) << devices;
  }
}

TEST(LeastChanges, TheDevicesThatAreNamedAreEnoughAndFewerAreNot) {
  const Bytes of_three = least_need(request_of(3)), of_two = least_need(request_of(2));
  ASSERT_LT(of_three, of_two);
  EXPECT_NE(line_with(changes_of(request_of(1), cluster_of(of_three)), "on 3 devices (1 node)"),
            "");
  EXPECT_NE(line_with(changes_of(request_of(1), cluster_of(of_two)), "on 2 devices (1 node)"), "");
  const auto none = changes_of(request_of(2), cluster_of(Bytes(100'000)));
  EXPECT_NE(line_with(none, "that were tried, up to 4"), "");
  EXPECT_EQ(line_with(changes_of(request_of(4), cluster_of(Bytes(100'000))), "that were tried"),
            "");
}

TEST(LeastChanges, MoreDevicesAreTriedByDoublingThenNarrowing) {
  EXPECT_EQ(more_devices(1, 8, 64), 2);
  EXPECT_EQ(more_devices(6, 8, 64), 8);
  EXPECT_EQ(more_devices(8, 8, 64), 16);
  EXPECT_EQ(more_devices(12, 8, 64), 16);
  EXPECT_EQ(more_devices(48, 8, 64), 64);
  EXPECT_EQ(more_devices(64, 8, 64), 0);
  EXPECT_EQ(more_devices(3, 8, 4), 4);
  EXPECT_EQ(more_devices(60, 8, 62), 0);
  EXPECT_EQ(devices_between(4, 8, 8), 6);
  EXPECT_EQ(devices_between(7, 8, 8), 0);
  EXPECT_EQ(devices_between(8, 32, 8), 16);
  EXPECT_EQ(devices_between(16, 32, 8), 24);
  EXPECT_EQ(devices_between(12, 16, 8), 0);
}

TEST(LeastChanges, AHeldChoiceThatHindersIsNamed) {
  const SearchRequest held = request_of(2, {{"recompute", "none"}, {"mp", "1"}, {"pp", "1"}});
  SearchRequest free = held;
  free.fixed.erase(free.fixed.begin());
  const Bytes enough = least_need(free);
  ASSERT_LT(enough, least_need(held));
  const auto lines = changes_of(held, cluster_of(enough));
  EXPECT_NE(line_with(lines, "without --fix recompute=none"), "");
}

TEST(LeastChanges, ABatchThatIsKeptWholeIsHalved) {
  // GPipe keeps all micro-batches. On all devices that the cluster has.
  const Fixed fixed = {{"schedule", "gpipe"}, {"pp", "4"}, {"micro_batch", "1"}};
  SearchRequest half = request_of(4, fixed);
  half.job.global_batch /= 2;
  const Bytes enough = least_need(half);
  const auto lines = changes_of(request_of(4, fixed), cluster_of(enough));
  EXPECT_NE(line_with(lines, "with a global batch of 8"), "");
  EXPECT_FALSE(changes_of(request_of(4, fixed), cluster_of(enough - Bytes(1))).empty());
}

/// On GPUs, so that types of the optimizer's state can be narrowed.
TEST(LeastChanges, NarrowerStatesAreNamedWhereTheFrameworkHasThem) {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  cluster.device.peak_bf16 = cluster.device.peak_fp32;
  SearchRequest request = request_of(4, {{"mp", "1"},
                                         {"pp", "1"},
                                         {"cp", "1"},
                                         {"dp", "1"},
                                         {"sharding_stage", "1"},
                                         {"micro_batch", "1"},
                                         {"recompute", "full"}});
  request.framework = framework_by_name("megatron-lm");
  request.job.precision = DType::bf16;
  request.job.vocab = 65536;  // so that weights take most
  const Bytes outside =
      memory_outside_program(request.job, parse_strategy("sharding_degree=4"), request.framework);
  const Bytes in_tensors = least_need(request) - outside;
  cluster.device.memory = outside + Bytes(in_tensors.count() * 95 / 100);
  const std::string line = line_with(changes_of(request, cluster), "_type=");
  ASSERT_TRUE(line.starts_with("with --fix ")) << line;
  SearchRequest changed = request;  // with what the line says
  const std::string choices = line.substr(0, line.find(':'));
  for (std::size_t at = 0; (at = choices.find("--fix ", at)) != std::string::npos;) {
    at += 6;
    const std::string choice = choices.substr(at, choices.find(' ', at) - at);
    const std::size_t equals = choice.find('=');
    changed.fixed.emplace_back(choice.substr(0, equals), choice.substr(equals + 1));
  }
  EXPECT_TRUE(changes_of(changed, cluster).empty()) << line;
}

TEST(LeastChanges, WhatThereIsNoTimeForIsSaid) {
  const Cluster cluster = cluster_of(Bytes(100'000));
  SearchRequest request = request_of(1, {{"micro_batch", "1"}});
  const CostModel costs = small_costs(cluster);
  const Space space = enumerate(request.job, request.framework, 1, request.fixed);
  request.stop = [] { return true; };
  try {
    refuse(request, costs, space, true);
    FAIL();
  } catch (const NothingFits& refused) {
    const std::string last = refused.changes().back();
    for (const char* left :
         {"fewer held choices", "narrower types", "smaller global batches", "more than 1 device"})
      EXPECT_NE(last.find(left), std::string::npos) << left << ": " << last;
    EXPECT_NE(std::string(refused.what()).find("looked at in the time there was"),
              std::string::npos);
  }
}

TEST(SingleChanges, MakeTheStrategyFitTheFastestFirst) {
  const Strategy strategy = parse_strategy("dp=4,micro_batch=4");
  const auto bytes_of = [](const Strategy& s) {
    return lay_out(nano_job(), s, bundled_framework(), small_cluster(), Bytes(), Proof::none)
        .reserved;
  };
  const Bytes all = bytes_of(strategy);
  const Cluster cluster = cluster_of(all - Bytes(1));
  const auto lines = single_changes(request_of(4), small_costs(cluster), strategy);
  EXPECT_TRUE(lines[0].starts_with("with ")) << lines[0];
  EXPECT_NE(line_with(lines, "with micro_batch=1:"), "");
  EXPECT_NE(line_with(lines, "with dp=1 sharding_degree=4 sharding_stage=1:"), "");
  const Cluster tiny = cluster_of(Bytes(10'000));
  const auto none = single_changes(request_of(4), small_costs(tiny), strategy);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_TRUE(none[0].starts_with("no single change")) << none[0];
}

}  // namespace
}  // namespace plimsoll
