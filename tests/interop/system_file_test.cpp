// Systems of calculon as clusters: both forms of its files, and what is refused.
#include "interop/imports/system_file.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

/// The form of github.com/calculon-ai/calculon of 2024, with numbers of our own.
const std::string kSystem =
    read_file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/interop/system.json");

Imported read_system(const std::string& text) { return import_text(text, "dir/a100_80g.json"); }

TEST(SystemFile, IsACluster) {
  const Imported imported = read_system(kSystem);
  EXPECT_EQ(imported.kind, "calculon system 2024-02");
  EXPECT_FALSE(imported.job || imported.strategy || imported.framework);
  const Cluster& cluster = *imported.cluster;
  EXPECT_EQ(cluster.name, "a100_80g");
  EXPECT_EQ(cluster.devices_per_node, 8);
  EXPECT_FALSE(cluster.nodes);
  EXPECT_EQ(cluster.device.memory, Bytes(std::int64_t{80} << 30));
  EXPECT_EQ(cluster.device.memory_bandwidth, BytesPerSecond(2e12));
  EXPECT_EQ(cluster.device.peak_fp16, FlopsPerSecond(300e12));
  EXPECT_EQ(cluster.device.peak_bf16, FlopsPerSecond(300e12));
  EXPECT_EQ(cluster.device.peak_fp8, FlopsPerSecond(600e12));
  EXPECT_FALSE(cluster.device.peak_fp32);
  ASSERT_EQ(cluster.levels.size(), 2u);
  EXPECT_EQ(cluster.levels[0].devices, 8);
  EXPECT_EQ(cluster.levels[1].devices, 0);
  EXPECT_EQ(cluster.levels[1].bandwidth, BytesPerSecond(25e9));
  EXPECT_EQ(cluster.levels[1].latency, Seconds(2e-5));
  EXPECT_FALSE(cluster.levels[0].reduces_in_switch);
  EXPECT_EQ(imported.unread, (std::vector<std::string>{"vector", "mem2", "processing_mode"}));
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "cluster.json"), cluster);
}

/// The step that begins at 3 GFLOP loses 3e9 / 3e14 (1 / 0.5 - 1 / 0.8) = 7.5 us there, and that
/// of memory at 10 MB 1e7 / 2e12 (1 / 0.75 - 1 / 0.9).
TEST(SystemFile, StepsBecomeAShareAndAFixedTime) {
  const Efficiency efficiency = *read_system(kSystem).cluster->efficiency;
  EXPECT_EQ(efficiency.matmul.peak_fraction, 0.8);
  EXPECT_NEAR(efficiency.matmul.fixed_time.value(), 7.5e-6, 1e-12);
  EXPECT_EQ(efficiency.matmul.fp8_rate, 0.5);
  EXPECT_EQ(efficiency.attention_backward.peak_fraction, 0.8);
  EXPECT_EQ(efficiency.memory.bandwidth_fraction, 0.9);
  EXPECT_NEAR(efficiency.memory.fixed_time.value(), 1e7 / 2e12 * (1 / 0.75 - 1 / 0.9), 1e-12);
  EXPECT_EQ(efficiency.overlap.compute_slowdown, 1.25);
  EXPECT_EQ(efficiency.levels[0].bandwidth_fraction, 0.65);
  EXPECT_EQ(efficiency.levels[1].bandwidth_fraction, 0.9);
}

TEST(SystemFile, EarlierFilesHaveOnePeak) {
  std::string text =
      with(kSystem, "\"float8\": {\"tflops\": 600, \"gflops_efficiency\": [[100, 0.4], [0, 0.2]]},",
           "\"tflops\": 312,");
  text = with(
      text,
      "\"float16\": {\"tflops\": 300, \"gflops_efficiency\": [[100, 0.8], [3, 0.5], [0, 0.1]]}",
      "\"gflops_efficiency\": {\"bfloat16\": [[16, 0.95], [0, 0.1]]}");
  text = with(text, "[2.0, -1]", "1.0");
  text = with(text, "\"must_be_filled\": true", "\"collective_minus1_scalar\": false");
  const Cluster cluster = *read_system(text).cluster;
  EXPECT_EQ(cluster.device.peak_bf16, FlopsPerSecond(312e12));
  EXPECT_FALSE(cluster.device.peak_fp16);
  EXPECT_TRUE(cluster.levels[0].reduces_in_switch);
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "cluster.json"), cluster);
}

TEST(SystemFile, FaultsNameTheirPlace) {
  struct Fault {
    const char *piece, *other, *message;
  };
  const Fault faults[] = {
      {"[3, 0.5]", "[300, 0.5]",
       "at /matrix/float16/gflops_efficiency: found an array of 3 elements; a list of [size, share] "
       "is required"},
      {"[0, 0.1]", "[1, 0.1]", "at /matrix/float16/gflops_efficiency: found"},
      {"[[100, 0.9]", "[[100, 1.9]", "at /mem1/MB_efficiency: found"},
      {"\"float8\"", "\"int8\"",
       "at /matrix/int8: found an object of 2 members; float8, float16, bfloat16 or float32 is "
       "required"},
      {"\"GiB\": 80", "\"GB\": 80", "at /mem1/GiB: the key is missing; is \"GB\" a misspelling"},
      {"\"size\": 65536", "\"size\": 12",
       "at /networks/1/size: found 12; a multiple of the 8 devices of the network before it"},
      {"\"all_reduce\": [2.0, -1]", "\"all_reduce\": \"fast\"",
       "at /networks/0/ops/all_reduce: found"},
      {"\"processor_usage\": 0.2", "\"processor_usage\": 1",
       "at /networks/0/processor_usage: found 1; a number from 0 to 0.9 is required"},
      {"\"latency\": 0.00001,", "\"latency\": 0.00001, \"hops\": 2,",
       "at /networks/0/hops: unknown key"},
  };
  for (const Fault& fault : faults) {
    try {
      read_system(with(kSystem, fault.piece, fault.other));
      ADD_FAILURE() << fault.other << " is read";
    } catch (const InputError& error) {
      const std::string expected = std::string("dir/a100_80g.json: ") + fault.message;
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
    }
  }
}

TEST(SystemFile, DamagedFilesAreReadOrRefused) {
  constexpr const char* kPieces[] = {"null", "-1", "0", "1e300", "[]", "{}", "\"x\"", ",", ":"};
  Random random(8);
  int read_anyway = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = damaged(random, kSystem, kPieces);
    if (!is_importable(text)) continue;
    try {
      const Imported imported = read_system(text);
      parse_cluster(cluster_text(*imported.cluster), "cluster.json");
      ++read_anyway;
    } catch (const InputError&) {
      continue;
    }
  }
  EXPECT_GT(read_anyway, 50);
}

}  // namespace
}  // namespace plimsoll
