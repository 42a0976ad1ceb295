// Topologies of nvidia-smi and NCCL: levels by hand, and refusal of what levels cannot say. The
// samples have the tools' layouts; the machines are chosen for tests.
#include "interop/hardware/topology.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/file.h"

namespace plimsoll {
namespace {

const std::filesystem::path kTopologySamples = PLIMSOLL_SOURCE_DIR "/tests/interop/topology";
const std::filesystem::path kClusters = PLIMSOLL_SOURCE_DIR "/models/presets/clusters";

std::string topology_sample(const char* name) { return read_file(kTopologySamples / name); }

struct Result {
  Cluster cluster;
  std::vector<std::string> notes;
};

TopologyGiven given(std::optional<std::int64_t> nodes = std::nullopt) {
  TopologyGiven given;
  given.name = "test";
  given.date = "2026-11-20";
  given.nodes = nodes;
  return given;
}

Result imported(const std::string& text, const char* device, const TopologyGiven& given) {
  Result result;
  const std::filesystem::path like = kClusters / device;
  result.cluster = cluster_from(parse_topology(text, "f"), read_cluster(like), like.string(), given,
                                result.notes);
  // A cluster file, with a source for every number.
  EXPECT_EQ(parse_cluster(cluster_text(result.cluster), "g"), result.cluster);
  return result;
}

std::string refusal(const std::string& text, const char* device, const TopologyGiven& given) {
  try {
    imported(text, device, given);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// GPUs of one node by the paths between them: "PIX" within a group, "SYS" between groups.
std::string groups_of(const std::vector<int>& sizes) {
  std::vector<int> group;
  for (std::size_t i = 0; i < sizes.size(); ++i) group.insert(group.end(), sizes[i], int(i));
  std::string text;
  for (std::size_t i = 0; i < group.size(); ++i) text += "\tGPU" + std::to_string(i);
  for (std::size_t i = 0; i < group.size(); ++i) {
    text += "\nGPU" + std::to_string(i);
    for (std::size_t j = 0; j < group.size(); ++j)
      text += i == j ? "\t X " : group[i] == group[j] ? "\tPIX" : "\tSYS";
  }
  return text + "\n";
}

TEST(Topology, PcieGroupsOfDifferentSizesAreRefused) {
  TopologyGiven rates = given(1);
  rates.pcie_bandwidth = BytesPerSecond(12e9);
  rates.socket_bandwidth = BytesPerSecond(6e9);
  for (const std::vector<int>& sizes : {std::vector{1, 3}, std::vector{2, 4}, std::vector{3, 1}}) {
    EXPECT_NE(refusal(groups_of(sizes), "g4dn-t4.json", rates)
                  .find("PCIe joins groups of GPUs that are not equally many consecutive ones"),
              std::string::npos);
  }
  const auto [cluster, notes] = imported(groups_of({2, 2}), "g4dn-t4.json", rates);
  ASSERT_EQ(cluster.levels.size(), 2u);
  EXPECT_EQ(cluster.levels[0].devices, 2);
  EXPECT_EQ(cluster.levels[1].devices, 4);
  EXPECT_TRUE(notes.empty() || notes[0].find("PCIe switches") == std::string::npos);
  // Under one host bridge the switch changes no rate: a note says that it has no level.
  std::string one_host = groups_of({1, 3});
  for (std::size_t at = 0; (at = one_host.find("SYS", at)) != one_host.npos;)
    one_host.replace(at, 3, "PHB");
  const Result host = imported(one_host, "g4dn-t4.json", rates);
  ASSERT_EQ(host.cluster.levels.size(), 1u);
  EXPECT_EQ(host.cluster.levels[0].devices, 4);
  ASSERT_FALSE(host.notes.empty());
  EXPECT_NE(host.notes[0].find("PCIe switches join different numbers of GPUs"), std::string::npos);
}

TEST(Topology, SwitchedNvlinkAndNicsOfText) {
  TopologyGiven rates = given();
  EXPECT_NE(
      refusal(topology_sample("hgx-h100.txt"), "dgx-h100-80gb.json", rates).find("--nic-bandwidth"),
      std::string::npos);
  rates.nic_bandwidth = BytesPerSecond(50e9);
  const auto [cluster, notes] =
      imported(topology_sample("hgx-h100.txt"), "dgx-h100-80gb.json", rates);
  EXPECT_EQ(cluster.devices_per_node, 8);
  EXPECT_EQ(cluster.device.name, "NVIDIA H100 SXM5 80GB");
  ASSERT_EQ(cluster.levels.size(), 2u);
  EXPECT_EQ(cluster.levels[0].devices, 8);
  EXPECT_EQ(cluster.levels[0].bandwidth, BytesPerSecond(450e9));  // 18 links of 25 GB/s
  EXPECT_TRUE(cluster.levels[0].reduces_in_switch);
  EXPECT_FALSE(cluster.levels[0].peer_bandwidth);
  EXPECT_EQ(cluster.levels[1].devices, 0);
  EXPECT_EQ(cluster.levels[1].bandwidth, BytesPerSecond(50e9));  // one NIC for each GPU
  ASSERT_EQ(notes.size(), 1u);  // the ninth NIC is behind no GPU's switch
  EXPECT_NE(notes[0].find("mlx5_8"), std::string::npos);
  EXPECT_NE(source_of(cluster, "/levels/0/bandwidth").find("H100"), std::string::npos);
  EXPECT_NE(source_of(cluster, "/levels/1/bandwidth").find("--nic-bandwidth"), std::string::npos);
  EXPECT_TRUE(cluster.efficiency);
}

TEST(Topology, NcclDumpSaysTheSame) {
  const auto [cluster, notes] =
      imported(topology_sample("hgx-h100.xml"), "dgx-h100-80gb.json", given(4));
  EXPECT_EQ(cluster.nodes, 4);
  ASSERT_EQ(cluster.levels.size(), 2u);
  EXPECT_EQ(cluster.levels[0].bandwidth, BytesPerSecond(450e9));
  EXPECT_TRUE(cluster.levels[0].reduces_in_switch);
  EXPECT_EQ(cluster.levels[1].bandwidth, BytesPerSecond(50e9));  // 400000 Mbit/s
  EXPECT_EQ(notes.size(), 1u);
  const std::string other =
      refusal(topology_sample("hgx-h100.xml"), "dgx-a100-80gb.json", given(4));
  EXPECT_NE(other.find("compute capability 9.0"), other.npos) << other;
  EXPECT_NE(other.find("8.0"), other.npos) << other;
}

TEST(Topology, LinksBetweenGpusWithoutSwitch) {
  TopologyGiven rates = given();
  rates.nic_bandwidth = BytesPerSecond(12.5e9);
  const Cluster cluster =
      imported(topology_sample("dgx1-v100.txt"), "dgx1-v100-32gb.json", rates).cluster;
  ASSERT_EQ(cluster.levels.size(), 2u);
  EXPECT_EQ(cluster.levels[0].bandwidth, BytesPerSecond(150e9));  // six links of 25 GB/s
  ASSERT_TRUE(cluster.levels[0].peer_bandwidth);
  EXPECT_NEAR(cluster.levels[0].peer_bandwidth->value(), 150e9 / 7, 1);  // to each of seven
  EXPECT_FALSE(cluster.levels[0].reduces_in_switch);
  EXPECT_EQ(cluster.levels[1].bandwidth, BytesPerSecond(6.25e9));  // four NICs for eight GPUs
}

TEST(Topology, PairsThenPcieThenSockets) {
  TopologyGiven rates = given(1);
  const auto refused = [&] {
    return refusal(topology_sample("a40-pairs.txt"), "dgx-a100-40gb.json", rates);
  };
  EXPECT_NE(refused().find("--pcie-bandwidth"), std::string::npos);
  rates.pcie_bandwidth = BytesPerSecond(25e9);
  EXPECT_NE(refused().find("--socket-bandwidth"), std::string::npos);
  rates.socket_bandwidth = BytesPerSecond(10e9);
  const auto [cluster, notes] =
      imported(topology_sample("a40-pairs.txt"), "dgx-a100-40gb.json", rates);
  ASSERT_EQ(cluster.levels.size(), 3u);
  EXPECT_EQ(cluster.levels[0].name, "NVLink");
  EXPECT_EQ(cluster.levels[0].devices, 2);
  EXPECT_EQ(cluster.levels[0].bandwidth, BytesPerSecond(100e9));
  EXPECT_EQ(cluster.levels[1].devices, 4);
  EXPECT_EQ(cluster.levels[1].bandwidth, BytesPerSecond(25e9));
  EXPECT_EQ(cluster.levels[2].devices, 8);
  EXPECT_EQ(cluster.levels[2].bandwidth, BytesPerSecond(10e9));
  EXPECT_EQ(notes.size(), 1u);  // other levels than the device's cluster has
  ASSERT_EQ(cluster.efficiency->levels.size(), 3u);
  EXPECT_EQ(cluster.efficiency->levels[0].bandwidth_fraction, 1);
}

TEST(Topology, PcieGenerationOfADump) {
  const Cluster cluster =
      imported(topology_sample("a100-pcie.xml"), "dgx-a100-40gb.json", given(1)).cluster;
  ASSERT_EQ(cluster.levels.size(), 1u);
  EXPECT_EQ(cluster.levels[0].name, "PCIe");
  EXPECT_EQ(cluster.levels[0].devices, 2);
  EXPECT_NEAR(cluster.levels[0].bandwidth.value(), 31.508e9, 1e6);  // 16 GT/s, 16 lanes, 128b/130b
  const std::string alone =
      refusal(topology_sample("a100-pcie.xml"), "dgx-a100-40gb.json", given());
  EXPECT_NE(alone.find("--nodes 1"), alone.npos) << alone;
}

std::string changed_topology(const char* name, const std::string& old, const std::string& other) {
  std::string text = topology_sample(name);
  const std::size_t at = text.find(old);
  EXPECT_NE(at, text.npos) << old;
  return text.replace(at, old.size(), other);
}

void expect_topology_refused(const std::string& text, std::initializer_list<const char*> words) {
  TopologyGiven rates = given();
  rates.nic_bandwidth = rates.pcie_bandwidth = rates.socket_bandwidth = BytesPerSecond(1e9);
  const std::string message = refusal(text, "dgx-h100-80gb.json", rates);
  EXPECT_NE(message, "");
  for (const char* word : words) EXPECT_NE(message.find(word), message.npos) << message;
}

TEST(Topology, HostileFilesAreRefusedWithTheirPlace) {
  expect_topology_refused("", {"no matrix"});
  expect_topology_refused("no matrix here\n", {"no matrix"});
  expect_topology_refused(std::string(10'000'000, 'G'), {"1:1", "10000000 bytes"});
  expect_topology_refused(changed_topology("hgx-h100.txt", "GPU1\tNV18", "GPU1\tNV99999999999"),
                          {"3:6", "NV9999"});
  expect_topology_refused(changed_topology("hgx-h100.txt", "GPU1\tNV18", "GPU1\tNV0"), {"3:6"});
  expect_topology_refused(changed_topology("hgx-h100.txt", "GPU1\tNV18", "GPU1\tNV12"),
                          {"GPU0", "GPU1"});
  expect_topology_refused(changed_topology("hgx-h100.txt", "GPU1\tNV18", "GPU0\tNV18"),
                          {"3:1", "twice"});
  expect_topology_refused(changed_topology("hgx-h100.txt", "GPU1\tNV18", "GPU1"),
                          {"3:7", "X is required"});
  expect_topology_refused(changed_topology("hgx-h100.txt", "\nGPU7", "\nCPU7"), {"no row of GPU7"});
  expect_topology_refused(changed_topology("hgx-h100.txt", "GPU1\tGPU2", "GPU1\tGPU1"), {"twice"});
  const char* xml = "hgx-h100.xml";
  expect_topology_refused(changed_topology(xml, "sm=\"90\"", "sm=\"ninety\""),
                          {"3:", "sm", "ninety"});
  expect_topology_refused(changed_topology(xml, "count=\"4\"", "count=\"-4\""), {"-4"});
  expect_topology_refused(changed_topology(xml, "count=\"4\"", "count=\"99999999999999999999\""),
                          {"count"});
  expect_topology_refused(changed_topology(xml, "speed=\"400000\"", "speed=\"\""), {"speed"});
  expect_topology_refused(changed_topology(xml, "dev=\"1\" sm", "dev=\"0\" sm"),
                          {"GPU 0 is there twice"});
  expect_topology_refused(
      changed_topology(xml, "<gpu dev=\"3\" sm=\"90\"", "<gpu dev=\"3\" sm=\"80\""), {"several"});
  expect_topology_refused(changed_topology(xml, "0xabc\" numaid=\"1\"", "0xdef\" numaid=\"1\""),
                          {"several hosts"});
  expect_topology_refused(changed_topology(xml, "</system>", ""), {"no element found"});
  expect_topology_refused("<graph></graph>", {"1:1", "graph", "system"});
  expect_topology_refused("<system/>", {"no <gpu>"});
  std::string deep = "<system>";
  for (int i = 0; i < 100'000; ++i) deep += "<pci>";
  expect_topology_refused(deep, {"nested deeper than 64"});
  expect_topology_refused(
      "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]><system>&b;</system>",
      {"document type"});
}

/// GPU 3 is bridged with nobody: levels join equally many.
TEST(Topology, UnequalGroupsAreRefused) {
  std::string text = topology_sample("a40-pairs.txt");
  for (std::size_t at = 0; (at = text.find("NV4", at)) != text.npos; ++at) {
    const std::size_t row = text.rfind('\n', at) + 1;
    const std::string name = text.substr(row, 4);
    if (name == "GPU2" || name == "GPU3") text.replace(at, 3, "SYS");
  }
  expect_topology_refused(text, {"NVLink", "consecutive"});
}

TEST(Topology, MutatedFilesAreReadOrRefused) {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(kTopologySamples)) {
    seeds.push_back(read_file(entry.path()));
  }
  std::sort(seeds.begin(), seeds.end());
  const Cluster like = read_cluster(kClusters / "dgx-h100-80gb.json");
  TopologyGiven rates = given();
  rates.nic_bandwidth = rates.pcie_bandwidth = rates.socket_bandwidth = BytesPerSecond(1e9);
  std::mt19937_64 random(1);
  std::size_t refused = 0, read = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (std::uint64_t changes = 1 + random() % 3; changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random() % text.size();
      const std::size_t length = std::min<std::size_t>(1 + random() % 60, text.size() - at);
      switch (random() % 4) {
        case 0:
          text[at] = char(random());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        default:
          text.insert(at, std::to_string(std::int64_t(random())));
      }
    }
    try {
      std::vector<std::string> notes;
      const Cluster cluster = cluster_from(parse_topology(text, "f"), like, "like", rates, notes);
      EXPECT_EQ(parse_cluster(cluster_text(cluster), "g"), cluster);
      ++read;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500u);
  EXPECT_GT(read, 100u);
}

}  // namespace
}  // namespace plimsoll
