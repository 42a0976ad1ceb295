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

SearchRequest request_of(std::int64_t devices, Fixed fixed = {},
                         const Cluster& cluster = small_cluster()) {
  SearchRequest request{nano_target(devices, cluster), std::move(fixed)};
  request.time_limit = Seconds(600);  // however slow the machine
  return request;
}

Cluster cluster_of(Bytes memory) {
  Cluster cluster = small_cluster();
  cluster.device.memory = memory;
  return cluster;
}

/// The changes that are named; none where something fits.
std::vector<std::string> changes_of(const SearchRequest& request) {
  try {
    search(request);
  } catch (const NothingFits& refused) {
    return refused.changes();
  }
  return {};
}

/// Returns the changes that are named on devices of so much memory.
std::vector<std::string> changes_of(std::int64_t devices, Bytes memory, Fixed fixed = {}) {
  return changes_of(request_of(devices, std::move(fixed), cluster_of(memory)));
}

std::string line_with(const std::vector<std::string>& lines, const std::string& words) {
  const auto at = std::ranges::find_if(
      lines, [&](const std::string& line) { return line.find(words) != std::string::npos; });
  return at == lines.end() ? "" : *at;
}

/// Returns the memory that the strategy of least need takes.
Bytes least_need(const SearchRequest& request) {
  const Target& target = request.target;
  const Space space =
      enumerate(target.job, target.framework(), target.devices, request.constraints.fixed);
  Bytes least(std::numeric_limits<std::int64_t>::max());
  for (const Strategy& strategy : space.legal) {
    const Footprint footprint = lay_out(target, strategy, Proof::none);
    least = std::min(least, largest(footprint.stages, &StagePrediction::reserved) +
                                outside_program(target, strategy));
  }
  return least;
}

TEST(LeastChanges, TheMemoryThatIsNamedIsTheLeastOfAllStrategies) {
  for (const std::int64_t devices : {1, 2, 4}) {
    const auto request = [&](Bytes memory) {
      SearchRequest with_reserve = request_of(devices, {}, cluster_of(memory));
      with_reserve.target.reserve = Bytes(1000);
      return with_reserve;
    };
    const Bytes enough = least_need(request(small_cluster().device.memory)) + Bytes(1000);
    const auto lines = changes_of(request(enough - Bytes(1)));
    const std::string named = std::to_string(enough.count()) + " bytes";
    EXPECT_NE(line_with(lines, named), "") << devices << ": " << named;
    EXPECT_NE(line_with(lines, "--reserve \"999 B\""), "");
    EXPECT_TRUE(changes_of(request(enough)).empty()) << devices;
  }
}

TEST(LeastChanges, TheDevicesThatAreNamedAreEnoughAndFewerAreNot) {
  const Bytes of_three = least_need(request_of(3)), of_two = least_need(request_of(2));
  ASSERT_LT(of_three, of_two);
  EXPECT_NE(line_with(changes_of(1, of_three), "on 3 devices (1 node)"), "");
  EXPECT_NE(line_with(changes_of(1, of_two), "on 2 devices (1 node)"), "");
  EXPECT_NE(line_with(changes_of(2, Bytes(100'000)), "that were tried, up to 4"), "");
  EXPECT_EQ(line_with(changes_of(4, Bytes(100'000)), "that were tried"), "");
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
  const Fixed free = {{"mp", "1"}, {"pp", "1"}};
  const Fixed held = {{"recompute", "none"}, {"mp", "1"}, {"pp", "1"}};
  const Bytes enough = least_need(request_of(2, free));
  ASSERT_LT(enough, least_need(request_of(2, held)));
  const auto lines = changes_of(2, enough, held);
  EXPECT_NE(line_with(lines, "without --fix recompute=none"), "");
}

TEST(LeastChanges, ABatchThatIsKeptWholeIsHalved) {
  // GPipe keeps all micro-batches. On all devices that the cluster has.
  const Fixed fixed = {{"schedule", "gpipe"}, {"pp", "4"}, {"micro_batch", "1"}};
  SearchRequest half = request_of(4, fixed);
  half.target.job.global_batch /= 2;
  const Bytes enough = least_need(half);
  const auto lines = changes_of(4, enough, fixed);
  EXPECT_NE(line_with(lines, "with a global batch of 8"), "");
  EXPECT_FALSE(changes_of(4, enough - Bytes(1), fixed).empty());
}

/// On GPUs, so that types of the optimizer's state can be narrowed.
TEST(LeastChanges, NarrowerStatesAreNamedWhereTheFrameworkHasThem) {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  cluster.device.peak_bf16 = cluster.device.peak_fp32;
  Job job = nano_job();
  job.precision = DType::bf16;
  job.vocab = 65536;  // so that weights take most
  const auto request = [&] {
    const CostModel costs(cluster, std::nullopt, framework_by_name("megatron-lm"));
    SearchRequest on_cluster{Target(job, costs, 4)};
    on_cluster.constraints.fixed = {{"mp", "1"},
                                    {"pp", "1"},
                                    {"cp", "1"},
                                    {"dp", "1"},
                                    {"sharding_stage", "1"},
                                    {"micro_batch", "1"},
                                    {"recompute", "full"}};
    on_cluster.time_limit = Seconds(600);
    return on_cluster;
  };
  const Bytes outside = outside_program(request().target, parse_strategy("sharding_degree=4"));
  const Bytes in_tensors = least_need(request()) - outside;
  cluster.device.memory = outside + Bytes(in_tensors.count() * 95 / 100);
  const std::string line = line_with(changes_of(request()), "_type=");
  ASSERT_TRUE(line.starts_with("with --fix ")) << line;
  const std::string host = line_with(changes_of(request()), "offload_");
  // Half of the states in the host's memory fits, too, but hardly.
  EXPECT_TRUE(host.starts_with("with --fix offload_optimizer_percent=100: ")) << host;
  SearchRequest changed = request();  // with what the line says
  const std::string choices = line.substr(0, line.find(':'));
  for (std::size_t at = 0; (at = choices.find("--fix ", at)) != std::string::npos;) {
    at += 6;
    const std::string choice = choices.substr(at, choices.find(' ', at) - at);
    const std::size_t equals = choice.find('=');
    changed.constraints.fixed.emplace_back(choice.substr(0, equals), choice.substr(equals + 1));
  }
  EXPECT_TRUE(changes_of(changed).empty()) << line;
}

TEST(LeastChanges, GradientsThatBackwardFreesAreNamed) {
  const auto request = [](Bytes memory, Fixed fixed = {}) {
    fixed.insert(fixed.end(), {{"mp", "1"}, {"pp", "1"}, {"cp", "1"}});
    SearchRequest changed = request_of(1, std::move(fixed), cluster_of(memory));
    changed.target.job.clip_norm = 0;
    changed.target.job.global_batch = 1;
    return changed;
  };
  const Bytes all = small_cluster().device.memory;
  const Bytes kept = least_need(request(all)),
              freed = least_need(request(all, {{"release_gradients", "true"}}));
  ASSERT_LT(freed, kept);
  const std::string line = line_with(changes_of(request(freed)), "release_gradients");
  EXPECT_TRUE(line.starts_with("with --fix release_gradients=true")) << line;
  SearchRequest clips = request(freed);
  clips.target.job.clip_norm = 1;
  EXPECT_EQ(line_with(changes_of(clips), "release_gradients"), "");
}

TEST(LeastChanges, PagedStatesAreNamedWhereTheHostHasItsOwnMemory) {
  const auto request = [](Bytes memory, DeviceKind kind, Fixed fixed = {}) {
    fixed.insert(fixed.end(), {{"mp", "1"}, {"pp", "1"}, {"cp", "1"}, {"micro_batch", "1"}});
    Cluster cluster = cluster_of(memory);
    cluster.device.kind = kind;
    const Framework framework = framework_by_name("bundled-cuda");
    Job job = nano_job();
    job.vocab = 8192;  // so that weights take most
    SearchRequest changed{Target(job, CostModel(cluster, std::nullopt, framework), 1)};
    changed.constraints.fixed = std::move(fixed);
    changed.time_limit = Seconds(600);
    return changed;
  };
  const Bytes all = small_cluster().device.memory;
  const Bytes kept = least_need(request(all, DeviceKind::gpu)),
              paged = least_need(request(all, DeviceKind::gpu, {{"paged_states", "true"}}));
  ASSERT_LT(paged, kept);
  const std::string line = line_with(changes_of(request(paged, DeviceKind::gpu)), "paged_states");
  EXPECT_TRUE(line.starts_with("with --fix paged_states=true")) << line;
}

TEST(LeastChanges, WhatThereIsNoTimeForIsSaid) {
  const Cluster cluster = cluster_of(Bytes(100'000));
  SearchRequest request = request_of(1, {{"micro_batch", "1"}}, cluster);
  const Space space = enumerate(request);
  request.stop = [] { return true; };
  try {
    refuse(request, space, true);
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

/// The strategies that are visited until so much work is done.
std::vector<std::size_t> visited(SearchRequest request, std::int64_t most_work,
                                 std::int64_t threads) {
  request.threads = threads;
  const Space space = enumerate(request);
  std::vector<std::size_t> found;
  std::int64_t done = 0;
  LeanestVisit visit;
  visit.limit = [] { return Bytes(std::numeric_limits<std::int64_t>::max()); };
  visit.look = [&](const Strategy&, std::size_t index) {
    found.push_back(index);
    return true;
  };
  visit.passed = [&](std::int64_t work) {
    if (work > 0) done += work;
    return done > most_work;
  };
  visit_leanest(request, space, visit);
  return found;
}

TEST(LeastChanges, EndByWorkThatIsTheSameOnAnyMachine) {
  const SearchRequest request = request_of(4);
  const auto some = visited(request, 1000, 1);
  EXPECT_EQ(some, visited(request, 1000, 3));
  EXPECT_TRUE(visited(request, 0, 1).empty());
  EXPECT_GT(some.size(), 0u);
  EXPECT_LT(some.size(), visited(request, 2000, 1).size());
}

/// A change that cannot apply is neither tried nor named as not tried.
/// On GPUs, since cores have no other memory.
TEST(LeastChanges, ActivationsInTheHostsMemoryAreTried) {
  const auto lines = [](DeviceKind kind) {
    Cluster cluster = small_cluster();
    cluster.device.kind = kind;
    Job job = nano_job();
    job.sequence = 512;  // so that activations take most
    const auto request = [&](const char* percent) {
      const char* name = kind == DeviceKind::gpu ? "bundled-cuda" : "bundled";
      const CostModel costs(cluster, std::nullopt, framework_by_name(name));
      SearchRequest on_cluster{Target(job, costs, 1)};
      on_cluster.constraints.fixed = {{"recompute", "none"}, {"micro_batch", "1"}};
      if (*percent != 0)
        on_cluster.constraints.fixed.emplace_back("offload_activations_percent", percent);
      on_cluster.time_limit = Seconds(600);
      return on_cluster;
    };
    const Bytes enough = least_need(request("100"));
    EXPECT_LT(enough, least_need(request("")));
    cluster.device.memory = enough;
    return line_with(changes_of(request("")), "offload_activations_percent");
  };
  EXPECT_TRUE(lines(DeviceKind::gpu).starts_with("with --fix offload_activations_percent=100: "));
  EXPECT_EQ(lines(DeviceKind::cpu_core), "");
}

TEST(LeastChanges, LeaveOutWhatTheRequestHolds) {
  const auto notes = [](Fixed fixed) {
    SearchRequest request = request_of(4, std::move(fixed));
    Cluster cluster = small_cluster();
    cluster.device.kind = DeviceKind::gpu;  // with separate memory
    request.target.costs =
        std::make_shared<const CostModel>(cluster, std::nullopt, framework_by_name("megatron-lm"));
    const FoundChanges found = least_changes(request, false, [](std::int64_t) { return true; });
    EXPECT_FALSE(found.proven);
    return found.notes.back();
  };
  EXPECT_NE(notes({}).find("states in the host's memory"), std::string::npos);
  EXPECT_EQ(notes({{"offload_optimizer_percent", "0"}}).find("states in the host's memory"),
            std::string::npos);
}

TEST(LeastChanges, HaveTheKindThatAPractitionerTriesFirst) {
  EXPECT_EQ(kind_of({{"mp", "2"}}), ChangeKind::other);
  EXPECT_EQ(kind_of({{"mp", "2"}, {"recompute", "full"}}), ChangeKind::other);
  EXPECT_EQ(kind_of({{"recompute_layers", "1"}, {"sharding_stage", "2"}}), ChangeKind::recompute);
  EXPECT_EQ(kind_of({{"DP", ""}}), ChangeKind::sharding);
  EXPECT_EQ(kind_of({{"offload_optimizer_percent", "50"}}), ChangeKind::offload);
  EXPECT_EQ(kind_of({{"offload_activations_percent", "100"}}), ChangeKind::offload);
}

/// The first change has a plain layout, though one with a context split needs less.
TEST(LeastChanges, ThePlainestLayoutIsNamed) {
  Cluster cluster = small_cluster();
  const auto fitting = [&](const Target& target) {
    SearchRequest request{target};
    request.time_limit = Seconds(600);
    try {
      search(request);
    } catch (const NothingFits& refused) {
      EXPECT_GT(refused.shortage().filling.missing(), Bytes());
      return refused.found().fitting;
    }
    return std::vector<FittingChange>();
  };
  const Strategy plain = parse_strategy("sharding_degree=2,sharding_stage=3,recompute=full");
  const Footprint footprint = lay_out(nano_target(2), plain, Proof::none);
  cluster.device.memory = largest(footprint.stages, &StagePrediction::reserved) +
                          outside_program(nano_target(2), plain);
  const auto found = fitting(nano_target(1, cluster));
  const FittingChange* first = first_of(found);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->kind, ChangeKind::more_devices);
  ASSERT_TRUE(first->devices);
  EXPECT_EQ(first->strategy.cp, 1);
  EXPECT_EQ(first->strategy.mp * first->strategy.pp, 1);
}

}  // namespace
}  // namespace plimsoll
