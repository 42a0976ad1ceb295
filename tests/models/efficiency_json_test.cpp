// Efficiency and sources of a cluster file: both ways, refusals; and every preset.
#include "models/cluster/efficiency_json.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

constexpr const char* kEfficiencyText = R"({
  "name": "pair",
  "nodes": null,
  "devices_per_node": 8,
  "device": {
    "name": "GPU", "kind": "gpu", "memory": "80 GiB", "memory_bandwidth": "3350 GB/s",
    "peak": {"bf16": "989 TFLOP/s"}
  },
  "levels": [
    {"name": "NVLink", "devices": 8, "bandwidth": "450 GB/s", "latency": "3 us",
     "peer_bandwidth": "50 GB/s", "reduces_in_switch": true},
    {"name": "network", "devices": null, "bandwidth": "50 GB/s", "group_bandwidth": "25 GB/s",
     "latency": "10 us"}
  ],
  "efficiency": {
    "matmul": {"peak_fraction": 0.75, "units": 108, "added_depth": 130, "half_rate_reuse": 64,
               "fixed_time": "3 us", "fp8_rate": 0.9, "rowwise_rate": 0.75,
               "f32_across_rate": 0.6,
               "fitted": {"from_flops": 1e9, "to_flops": 1e13, "error": 0.03}},
    "attention_forward": {"peak_fraction": 0.6, "fixed_time": "10 us"},
    "attention_backward": {"peak_fraction": 0.5, "fixed_time": "1 us",
                           "fitted": {"from_flops": 1e10, "to_flops": 1e12, "error": 0.02}},
    "memory": {"bandwidth_fraction": 0.8, "fixed_time": "2 us"},
    "overlap": {"compute_slowdown": 1.2, "communication_slowdown": 1.1},
    "levels": [
      {"bandwidth_fraction": 0.7, "fixed_time": "20 us",
       "fitted": {"from": "1 MiB", "to": "1 GiB", "error": 0.1}},
      {"bandwidth_fraction": 0.9, "fixed_time": "0 s"}
    ]
  },
  "source": {
    "/devices_per_node": {"document": "a", "where": "table 1", "date": "2020"},
    "/device": {"document": "b", "where": "page 2", "date": "2020-06"},
    "/device/peak": {"document": "c", "where": "table 3", "date": "2020-06-30"},
    "/levels": {"document": "d", "where": "section 4", "date": "2021"},
    "/efficiency": {"document": "e", "where": "run 5", "date": "2026-11-20"}
  }
})";

TEST(Efficiency, IsReadAndWrittenExactly) {
  const Cluster cluster = parse_cluster(kEfficiencyText, "f");
  ASSERT_TRUE(cluster.efficiency);
  const MatmulEfficiency& matmul = cluster.efficiency->matmul;
  EXPECT_EQ(matmul.peak_fraction, 0.75);
  EXPECT_EQ(matmul.units, 108);
  EXPECT_EQ(matmul.fixed_time.value(), 3e-6);
  EXPECT_EQ(matmul.fp8_rate, 0.9);
  EXPECT_EQ(matmul.rowwise_rate, 0.75);
  EXPECT_EQ(matmul.f32_across_rate, 0.6);
  EXPECT_EQ(matmul.fitted->to.value(), 1e13);
  EXPECT_EQ(cluster.efficiency->attention_forward.peak_fraction, 0.6);
  EXPECT_EQ(cluster.efficiency->attention_backward.fitted->error, 0.02);
  EXPECT_FALSE(cluster.efficiency->memory.fitted);
  EXPECT_EQ(cluster.efficiency->overlap.compute_slowdown, 1.2);
  EXPECT_EQ(cluster.efficiency->overlap.communication_slowdown, 1.1);
  EXPECT_EQ(cluster.efficiency->levels[0].fitted->from, Bytes(1 << 20));
  EXPECT_EQ(cluster.levels[0].peer_bandwidth->value(), 50e9);
  EXPECT_EQ(cluster.levels[1].group_bandwidth->value(), 25e9);
  EXPECT_TRUE(cluster.levels[0].reduces_in_switch);
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
}

/// Products of 16 bits may run at the limit of power, and those of 8 bits at more than twice their
/// rate.
TEST(Efficiency, EightBitsReachAtMostTheirPeak) {
  const auto with = [](std::string rate) {
    std::string text = kEfficiencyText;
    const std::string stated = "\"fp8_rate\": 0.9";
    return parse_cluster(text.replace(text.find(stated), stated.size(), "\"fp8_rate\": " + rate),
                         "f");
  };
  EXPECT_EQ(with("1.3").efficiency->matmul.fp8_rate, 1.3);
  EXPECT_THROW(with("1.4"), InputError);  // times 0.75
}

/// Rates of 1 are left out, unless a source is about one of them.
TEST(Sources, DefaultsThatTheyAreAboutAreWritten) {
  Cluster cluster = parse_cluster(*find_preset(cluster_presets(), "dgx-h100-80gb"), "f");
  cluster.efficiency->matmul.fp8_rate = cluster.efficiency->matmul.unaligned_rate = 1;
  cluster.efficiency->overlap = {};
  cluster.levels[0].reduces_in_switch = false;
  std::erase_if(cluster.sources, [](const Source& source) {
    return source.covers.find("_rate") != source.covers.npos ||
           source.covers.find("/overlap") != source.covers.npos;
  });
  for (const char* about :
       {"/efficiency/matmul/fp8_rate", "/efficiency/overlap",
        "/efficiency/overlap/communication_slowdown", "/levels/0/reduces_in_switch"}) {
    Cluster sourced = cluster;
    sourced.sources.push_back({about, "a", "page 2", "2021"});
    EXPECT_EQ(parse_cluster(cluster_text(sourced), "g").sources.size(), sourced.sources.size());
  }
  EXPECT_EQ(cluster_text(cluster).find("fp8_rate"), std::string::npos);
}

TEST(Sources, TheClosestOneCounts) {
  const Cluster cluster = parse_cluster(kEfficiencyText, "f");
  EXPECT_EQ(source_of(cluster, "/device/peak"), "c, table 3, 2020-06-30");
  EXPECT_EQ(source_of(cluster, "/device/peak/bf16"), "c, table 3, 2020-06-30");
  EXPECT_EQ(source_of(cluster, "/device/memory"), "b, page 2, 2020-06");
  EXPECT_EQ(source_of(cluster, "/efficiency/matmul"), "e, run 5, 2026-11-20");
}

TEST(Efficiency, SaysWhatWasFitted) {
  EXPECT_EQ(fits_of(parse_cluster(kEfficiencyText, "f")),
            "matmul fitted to 3 %, attention datasheet, memory datasheet, NVLink fitted to 10 %, "
            "network datasheet");
}

struct EfficiencyChange {
  const char *from, *to, *message;
};

TEST(Efficiency, Refusals) {
  const std::string text = kEfficiencyText;
  const EfficiencyChange changes[] = {
      {"\"peak_fraction\": 0.75", "\"peak_fraction\": 1.01",
       "f: at /efficiency/matmul/peak_fraction: found 1.01"},
      {"\"peak_fraction\": 0.75", "\"peak_fraction\": -0.5", "matmul/peak_fraction: found -0.5"},
      {"\"peak_fraction\": 0.75", "\"peak_fraction\": null", "matmul/peak_fraction: found null"},
      {"\"peak_fraction\": 0.75", "\"peak_fraction\": \"0.75\"", "/peak_fraction: found \"0.75\""},
      {"\"peak_fraction\"", "\"peak_fracton\"", "/matmul/peak_fraction: the key is missing"},
      {"\"units\": 108", "\"units\": 0", "/matmul/units: found 0"},
      {"\"units\": 108", "\"units\": 1.5", "/matmul/units: found 1.5"},
      {"\"added_depth\": 130", "\"added_depth\": -1", "/matmul/added_depth: found -1"},
      {"\"half_rate_reuse\": 64", "\"half_rate_reuse\": 1e7", "/matmul/half_rate_reuse: found"},
      {"\"fixed_time\": \"3 us\"", "\"fixed_time\": 3", "/matmul/fixed_time: found 3"},
      {"\"fixed_time\": \"3 us\"", "\"fixed_time\": \"-3 us\"", "found \"-3 us\""},
      {"\"fixed_time\": \"3 us\"", "\"fixed_time\": \"2 s\"", "found \"2 s\"; from 0 s to 1 s"},
      {"\"to_flops\": 1e13", "\"to_flops\": 1e8", "/matmul/fitted/to_flops: found"},
      {"\"error\": 0.03", "\"error\": 1.5", "/matmul/fitted/error: found 1.5"},
      {"\"error\": 0.03", "\"error\": 0.03, \"eror\": 1", "/matmul/fitted/eror: unknown key"},
      {"\"peak_fraction\": 0.6", "\"peak_fraction\": 1.2",
       "/attention_forward/peak_fraction: found"},
      {"\"attention_backward\"", "\"attention_backwards\"",
       "/efficiency/attention_backward: the key is missing"},
      {"\"error\": 0.02", "\"error\": null", "/attention_backward/fitted/error: found null"},
      {"\"bandwidth_fraction\": 0.8", "\"bandwidth_fraction\": 0", "/memory/bandwidth_fraction"},
      {"\"fixed_time\": \"2 us\"", "\"fixed_time\": null", "/memory/fixed_time: found null"},
      {"\"to\": \"1 GiB\"", "\"to\": \"1 KiB\"", "/levels/0/fitted/to: found \"1 KiB\"; at least"},
      {"\"bandwidth_fraction\": 0.7", "\"bandwidth_fraction\": 7", "/levels/0/bandwidth_fraction"},
      {",\n      {\"bandwidth_fraction\": 0.9, \"fixed_time\": \"0 s\"}", "",
       "f: at /efficiency/levels: found an array of 1 elements; one for each of the 2 levels is "
       "required"},
      {"\"memory\": {", "\"memori\": {", "/efficiency/memory: the key is missing"},
      {"\"efficiency\": {", "\"efficency\": {", "f: at /efficency: unknown key; did you mean"},
      {"\"peer_bandwidth\": \"50 GB/s\"", "\"peer_bandwidth\": \"451 GB/s\"",
       "/levels/0/peer_bandwidth: found \"451 GB/s\"; it can be no more"},
      {"\"peer_bandwidth\": \"50 GB/s\"", "\"peer_bandwidth\": 50", "peer_bandwidth: found 50"},
      {"\"reduces_in_switch\": true", "\"reduces_in_switch\": 1", "reduces_in_switch: found 1"},
      {"\"latency\": \"10 us\"}", "\"latency\": \"10 us\", \"reduces_in_switch\": true}",
       "/levels/1/reduces_in_switch: found true; only the innermost"},
      {"\"/device\": {", "\"/devices\": {",
       "f: at /source/~1devices: found an object of 3 members; this file has no number there"},
      {"\"document\": \"a\"", "\"document\": \"\"", "~1devices_per_node/document: found \"\""},
      {"\"where\": \"page 2\"", "\"wher\": \"page 2\"", "/where: the key is missing"},
      {"\"date\": \"2021\"", "\"date\": \"last year\"", "/date: found \"last year\"; a date like"},
      {"\"date\": \"2021\"", "\"date\": 2021", "/date: found 2021"},
      {"\"date\": \"2021\"", "\"date\": \"2021\", \"page\": 3", "/page: unknown key"},
  };
  for (const EfficiencyChange& change : changes) {
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

/// Every number of the file is covered, and by each source needed for it: without one, it is
/// refused.
void expect_sources_needed(const std::string& text) {
  const Json whole = parse_json(text, "f");
  ASSERT_TRUE(whole.at("source").is_object()) << "one text cannot source every number";
  std::vector<std::string> covering;
  for (const auto& [pointer, source] : whole.at("source").items()) covering.push_back(pointer);
  for (const std::string& pointer : covering) {
    // A source within another's reach is more exact, not needed.
    const bool within = std::any_of(covering.begin(), covering.end(), [&](const auto& other) {
      return pointer.starts_with(other + "/");
    });
    if (within) continue;
    Json without = whole;
    without["source"].erase(pointer);
    EXPECT_THROW(parse_cluster(without.dump(), "f"), InputError) << "without " << pointer;
  }
}

TEST(Sources, NoneMayBeMissing) {
  expect_sources_needed(kEfficiencyText);
  Json none = parse_json(kEfficiencyText, "f");
  none["source"] = Json::object();
  EXPECT_THROW(parse_cluster(none.dump(), "f"), InputError);
}

TEST(ClusterPresets, EveryNumberHasASource) {
  int with_efficiency = 0;
  const auto folder = std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "models/presets/clusters";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename());
    const std::string text = read_file(entry.path());
    const Cluster cluster = parse_cluster(text, entry.path().string());
    EXPECT_EQ(entry.path().filename(), cluster.name + ".json");
    // Where a document says how nodes are joined, there may be any number of them.
    const bool one_level = cluster.levels.back().devices == cluster.devices_per_node;
    EXPECT_EQ(cluster.nodes, one_level ? std::optional<std::int64_t>(1) : std::nullopt);
    if (cluster.efficiency) ++with_efficiency;
    expect_sources_needed(text);
    EXPECT_EQ(parse_cluster(cluster_text(cluster), "again"), cluster);
  }
  EXPECT_GE(with_efficiency, 5);
}

TEST(ClusterPresets, RatesAreDense) {
  const auto read = [](const std::string& name) {
    return read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/" + name + ".json").device;
  };
  EXPECT_FALSE(read("dgx1-v100-32gb").peak_bf16) << "Volta has no bf16";
  EXPECT_EQ(read("dgx1-v100-32gb").peak_fp16->value(), 125e12);
  EXPECT_EQ(read("dgx-a100-80gb").peak_bf16->value(), 312e12);
  EXPECT_EQ(read("dgx-h100-80gb").peak_bf16->value(), 989.5e12);
  EXPECT_EQ(read("hgx-h200").memory, Bytes(std::int64_t{143156} << 20));
}

}  // namespace
}  // namespace plimsoll
