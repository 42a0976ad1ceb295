// Clusters: units both ways, null nodes, nesting levels, refusals.
#include "models/cluster/cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "base/error.h"
#include "models/cluster/network_kind.h"
#include "models/presets/presets.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

constexpr const char* kText = R"({
  "name": "two-nodes",
  "nodes": 2,
  "devices_per_node": 8,
  "device": {
    "name": "GPU", "kind": "gpu", "memory": "80 GiB", "memory_bandwidth": "3350 GB/s",
    "peak": {"fp32": "67 TFLOP/s", "bf16": "989 TFLOP/s"}
  },
  "levels": [
    {"name": "NVLink", "devices": 8, "bandwidth": "450 GB/s", "latency": "3 us"},
    {"name": "network", "devices": null, "bandwidth": "400 Gbit/s", "latency": "10 us"}
  ],
  "source": "an invented example for this test, 2026-11-20"
})";

TEST(Cluster, ReadsSpelledUnits) {
  const Cluster cluster = parse_cluster(kText, "f");
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.device.kind, DeviceKind::gpu);
  EXPECT_EQ(cluster.device.memory, Bytes(std::int64_t{80} << 30));
  EXPECT_EQ(cluster.device.memory_bandwidth.value(), 3350e9);
  EXPECT_EQ(cluster.levels[0].latency.value(), 3e-6);
  EXPECT_EQ(cluster.levels[1].bandwidth.value(), 50e9);
  EXPECT_EQ(cluster.levels[1].devices, 0);
  EXPECT_EQ(peak(cluster.device, DType::f32)->value(), 67e12);
  EXPECT_EQ(peak(cluster.device, DType::bf16)->value(), 989e12);
  EXPECT_FALSE(peak(cluster.device, DType::f16));
  EXPECT_FALSE(peak(cluster.device, DType::i32));
}

TEST(Cluster, RoundTripsExactly) {
  Cluster cluster = parse_cluster(kText, "f");
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
  // These are numbers as a measurement gives them, which are not round.
  cluster.nodes = std::nullopt;
  cluster.device.kind = DeviceKind::cpu_core;
  cluster.device.memory = Bytes(25'769'803'777);
  cluster.device.memory_bandwidth = BytesPerSecond(1e10 / 3);
  cluster.device.peak_fp32 = FlopsPerSecond(158.123456789e9);
  cluster.device.peak_bf16 = std::nullopt;
  cluster.levels = {{"memory", 0, BytesPerSecond(1e4 * (0.1 + 0.2)), Seconds(1e-6 / 7)}};
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
}

TEST(Cluster, StatesTheKindOfItsNetwork) {
  Cluster cluster = parse_cluster(kText, "f");
  EXPECT_EQ(cluster.levels[1].network, "");
  cluster.levels[1].network = "ethernet";
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
  cluster.levels[1].network = "token ring";
  EXPECT_THROW(parse_cluster(cluster_text(cluster), "again"), InputError);
  for (const NetworkKind& kind : network_kinds()) {
    EXPECT_EQ(kind.sources.size(), 2u) << kind.key;
    EXPECT_GT(kind.latency, Seconds(0)) << kind.key;
  }
}

TEST(Cluster, StatesItsHost) {
  std::string text = kText;
  EXPECT_FALSE(parse_cluster(text, "f").host);
  text.insert(text.find("\"source\""),
              "\"host\": {\"to_host\": \"20 GB/s\", \"to_device\": \"22 GB/s\", "
              "\"memory_bandwidth\": \"50 GB/s\", \"memory\": \"1 TiB\"}, ");
  Cluster cluster = parse_cluster(text, "f");
  EXPECT_EQ(cluster.host, (Host{BytesPerSecond(20e9), BytesPerSecond(22e9), BytesPerSecond(50e9),
                                Bytes(std::int64_t{1} << 40)}));
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
  cluster.host->memory.reset();
  cluster.host->core_speed = 0.75;
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
}

struct Change {
  const char* from;
  const char* to;
  const char* message;
};

TEST(Cluster, Refusals) {
  const std::string text = kText;
  const Change changes[] = {
      {"\"80 GiB\"", "80", "f: at /device/memory: found 80; a text with a number and a unit"},
      {"\"80 GiB\"", "\"80\"", "f: at /device/memory: found \"80\""},
      {"\"80 GiB\"", "\"0 B\"", "more than 0 is required"},
      {"3350 GB/s", "999 B/s",
       "f: at /device/memory_bandwidth: found \"999 B/s\"; from 1 kB/s to 1e18 B/s is required"},
      {"67 TFLOP/s", "1e22 FLOP/s",
       "f: at /device/peak/fp32: found \"1e22 FLOP/s\"; from 1 MFLOP/s"},
      {"989 TFLOP/s", "1 FLOP/s", "f: at /device/peak/bf16: found \"1 FLOP/s\"; from 1 MFLOP/s"},
      {"400 Gbit/s", "1 B/s", "f: at /levels/1/bandwidth: found \"1 B/s\"; from 1 kB/s"},
      {"10 us", "101 s", "f: at /levels/1/latency: found \"101 s\"; from 0 s to 100 s"},
      {"450 GB/s", "450 GB", "f: at /levels/0/bandwidth: found \"450 GB\""},
      {"\"nodes\": 2", "\"nodes\": 0", "f: at /nodes: found 0"},
      {"\"nodes\": 2", "\"nods\": 2", "f: at /nods: unknown key; did you mean \"nodes\"?"},
      {"\"kind\": \"gpu\"", "\"kind\": \"tpu\"", "allowed: \"cpu_core\", \"gpu\""},
      {"\"fp32\": \"67 TFLOP/s\", \"bf16\": \"989 TFLOP/s\"", "", "at least one of fp32"},
      {"\"devices\": 8", "\"devices\": null",
       "f: at /levels/0/devices: found null; only the outermost"},
      {"\"devices\": null", "\"devices\": 12",
       "f: at /levels/1/devices: found 12; a larger multiple"},
      {"an invented example for this test, 2026-11-20", "", "f: at /source: found \"\"; say where"},
      {",\n  \"source\": \"an invented example for this test, 2026-11-20\"", "",
       "f: at /source: the key is missing"},
  };
  for (const Change& change : changes) {
    std::string changed = text;
    const std::size_t at = changed.find(change.from);
    ASSERT_NE(at, text.npos) << change.from;
    changed.replace(at, std::string(change.from).size(), change.to);
    try {
      parse_cluster(changed, "f");
      ADD_FAILURE() << "accepted " << change.to;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(change.message), std::string::npos) << error.what();
    }
  }
}

/// The text with a node whose devices are others.
std::string mixed(const std::string& others) {
  std::string text = kText;
  text.insert(text.rfind("\n}"), ",\n  \"other_devices\": [" + others + "]");
  return text;
}
constexpr const char* kOther = R"({"nodes": [1, 1], "device": {
    "name": "older", "kind": "gpu", "memory": "32 GiB", "memory_bandwidth": "900 GB/s",
    "peak": {"fp32": "15 TFLOP/s", "fp16": "125 TFLOP/s"}}})";

TEST(Cluster, NodesMayHaveOtherDevices) {
  const Cluster cluster = parse_cluster(mixed(kOther), "f");
  ASSERT_EQ(cluster.other_devices.size(), 1u);
  EXPECT_EQ(device_kind(cluster, 7), 0u);
  EXPECT_EQ(device_kind(cluster, 8), 1u);
  EXPECT_EQ(device_of(cluster, 1).memory, Bytes(std::int64_t{32} << 30));
  EXPECT_EQ(devices_by_kind(cluster, 8), (std::map<std::size_t, std::int64_t>{{0, 8}}));
  EXPECT_EQ(devices_by_kind(cluster, 11), (std::map<std::size_t, std::int64_t>{{0, 8}, {1, 3}}));
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
  Cluster fitted = cluster;
  fitted.other_devices[0].efficiency = Efficiency{};
  fitted.other_devices[0].efficiency->matmul.peak_fraction = 0.75;
  EXPECT_EQ(parse_cluster(cluster_text(fitted), "again"), fitted);
}

TEST(Cluster, EqualDevicesAreOfOneKind) {
  Cluster cluster = parse_cluster(kText, "f");
  cluster.nodes = 6;
  Device older = cluster.device;
  older.name = "older";
  cluster.other_devices = {{1, 1, older, {}}, {3, 2, cluster.device, {}}, {5, 1, older, {}}};
  EXPECT_EQ(device_kind(cluster, 8), 1u);
  EXPECT_EQ(device_kind(cluster, 24), 0u) << "as the cluster's own";
  EXPECT_EQ(device_kind(cluster, 40), 1u);
  EXPECT_EQ(devices_by_kind(cluster, 48), (std::map<std::size_t, std::int64_t>{{0, 32}, {1, 16}}));
}

TEST(Cluster, OtherDevicesAreRefusedWhereTheyCannotBe) {
  const std::string other = kOther;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = other;
    changed.replace(changed.find(from), from.size(), to);
    return changed;
  };
  const std::pair<std::string, const char*> refused[] = {
      {with("[1, 1]", "[1, 2]"), "2 nodes from node 1 on; the cluster has 2"},
      {with("[1, 1]", "[1]"),
       "f: at /other_devices/0/nodes: found an array of 1 elements; [first, count] is"},
      {with("[1, 1]", "[0, 2]"), "at least one node must have the cluster's device"},
      {with("\"gpu\"", "\"cpu_core\""), "kind must be gpu, as that of the cluster's device"},
      {with("\"nodes\"", "\"node\""), "f: at /other_devices/0/nodes: the key is missing"},
      {other + ", " + other, "nodes behind those of the entry before are required"},
  };
  for (const auto& [others, message] : refused) {
    try {
      parse_cluster(mixed(others), "f");
      ADD_FAILURE() << "accepted " << others;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

/// Reads the preset of that name.
Cluster preset(const char* name) {
  return parse_cluster(*find_preset(cluster_presets(), name), name);
}

// Peaks with sparsity are twice the dense ones, and an 8-bit product takes half as long as one of
// 16 bits. Where one of two peaks counts sparsity, their ratio is 1 or 4.
TEST(PresetsOfClusters, PeaksOfAllTypesAreDense) {
  for (const Preset& known : cluster_presets()) {
    const Cluster cluster = parse_cluster(known.text, std::string(known.name));
    const Device& device = cluster.device;
    EXPECT_EQ(cluster.name, known.name);
    if (device.peak_bf16 && device.peak_fp16) {
      const double halved = known.name == "mi100-32gb" ? 2 : 1;  // its BF16 takes twice as long
      EXPECT_EQ(halved * *device.peak_bf16, *device.peak_fp16) << known.name;
    }
    if (device.peak_fp8) {
      EXPECT_NEAR(*device.peak_fp8 / *device.peak_bf16, 2, 0.05) << known.name;
    }
  }
}

// Devices that are wired to each other without a switch share their links among all of the node.
TEST(PresetsOfClusters, LinksToPeersAddUpToTheLevel) {
  for (const Preset& known : cluster_presets()) {
    const Cluster cluster = parse_cluster(known.text, std::string(known.name));
    for (const Level& level : cluster.levels) {
      if (!level.peer_bandwidth || !cluster.device.name.starts_with("AMD")) continue;
      EXPECT_DOUBLE_EQ(level.peer_bandwidth->value() * double(level.devices - 1),
                       level.bandwidth.value())
          << known.name;
    }
  }
}

// Numbers as documents print them, each for one trap: halves of rates with sparsity, of rates with
// FP16 accumulate and of bandwidths in both directions, and GB that are GiB.
TEST(PresetsOfClusters, HaveTheNumbersOfTheirDatasheets) {
  const auto tera = [](const char* name) { return preset(name).device.peak_bf16->value() / 1e12; };
  const auto giga = [](const char* name) { return preset(name).levels[0].bandwidth.value() / 1e9; };
  EXPECT_DOUBLE_EQ(tera("h100-nvl-94gb"), 1671.0 / 2) << "1,671 with sparsity";
  EXPECT_DOUBLE_EQ(tera("h100-pcie-80gb"), 756) << "1,513 with sparsity";
  EXPECT_DOUBLE_EQ(tera("g6e-l40s"), 362.05) << "733 with sparsity";
  EXPECT_DOUBLE_EQ(tera("rtx-4090"), 165.2) << "330.3 with FP16 accumulate";
  EXPECT_DOUBLE_EQ(tera("rtx-5090"), 209.5) << "419 with FP16 accumulate";
  EXPECT_DOUBLE_EQ(giga("h100-nvl-94gb"), 600.0 / 2) << "in both directions";
  EXPECT_DOUBLE_EQ(giga("hgx-h20-96gb"), 900.0 / 2) << "in both directions";
  EXPECT_DOUBLE_EQ(giga("hgx-h800-80gb"), 400.0 / 2) << "in both directions";
  EXPECT_DOUBLE_EQ(giga("hgx-a800-80gb"), 400.0 / 2) << "in both directions";
  EXPECT_DOUBLE_EQ(giga("mi300x-192gb"), 896.0 / 2) << "in both directions";
  // The driver keeps less than 0.1 % of the GiB that the data sheet calls GB.
  for (const auto& [name, gib] : {std::pair("mi300x-192gb", 192), std::pair("mi355x-288gb", 288)}) {
    const double memory = double(preset(name).device.memory.count()) / std::pow(2.0, 30);
    EXPECT_LT(memory, gib) << name;
    EXPECT_GT(memory, 0.999 * gib) << name;
  }
}

TEST(Cluster, OneNodeNeedsNoLevels) {
  Cluster cluster = parse_cluster(kText, "f");
  cluster.levels.clear();
  EXPECT_THROW(parse_cluster(cluster_text(cluster), "two nodes"), InputError);
  cluster.nodes = std::nullopt;
  EXPECT_THROW(parse_cluster(cluster_text(cluster), "any number of nodes"), InputError);
  cluster.nodes = 1;
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "one node"), cluster);
}

TEST(Cluster, TheOutermostLevelConnectsEverything) {
  std::string text = kText;
  text.replace(text.find("\"nodes\": 2"), 10, "\"nodes\": 3");
  text.replace(text.find("\"devices\": null"), 15, "\"devices\": 16");
  try {
    parse_cluster(text, "f");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"/levels/1/devices", "found 16", "24"}));
  }
}

}  // namespace
}  // namespace plimsoll
