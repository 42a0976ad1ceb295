// Starting files: what is asked, what the answers make, and that readers take it.
#include "planner/init/init.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/error.h"
#include "models/cluster/cluster.h"
#include "models/cluster/network_kind.h"
#include "models/framework/framework.h"
#include "models/framework/framework_json.h"
#include "models/job/job.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

Job job_from(Answers answers) {
  return parse_job(init_text(InitKind::job, take_usual(InitKind::job, std::move(answers))), "job");
}

Cluster cluster_from(Answers answers) {
  answers["date"] = "2026-06-30";
  answers = take_usual(InitKind::cluster, std::move(answers));
  return parse_cluster(init_text(InitKind::cluster, answers), "cluster");
}

/// Returns the message of a UsageError or an InputError, or nothing.
template <class Make>
std::string refused(Make make) {
  try {
    make();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(InitJob, KeepsWhatNobodyChanged) {
  const Job preset = read_job("qwen2-7b");
  Job made = job_from({{"based-on", "qwen2-7b"}});
  EXPECT_EQ(made.name, "my-qwen2-7b");
  made.name = preset.name;
  EXPECT_EQ(made, preset);
}

TEST(InitJob, ChangesAPreset) {
  const Job job = job_from({{"based-on", "llama3-8b"},
                            {"layers", "16"},
                            {"sequence", "4096"},
                            {"precision", "fp16"},
                            {"name", "half"}});
  EXPECT_EQ(job.name, "half");
  EXPECT_EQ(job.layers, 16);
  EXPECT_EQ(job.sequence, 4096);
  EXPECT_EQ(job.hidden, 4096) << "as there";
  EXPECT_EQ(job.global_batch, 512) << "as there";
  EXPECT_EQ(job.precision, DType::f16);
}

TEST(InitJob, MakesAShapeOfSizes) {
  const Job job = job_from({{"layers", "2"},
                            {"hidden", "64"},
                            {"heads", "4"},
                            {"kv-heads", "2"},
                            {"vocab", "256"},
                            {"sequence", "128"},
                            {"global-batch", "8"}});
  EXPECT_EQ(job.family, Family::llama);
  EXPECT_EQ(job.kv_heads, 2);
  EXPECT_EQ(job.ffn_hidden, 256) << "4 x hidden";
  EXPECT_EQ(job.precision, DType::bf16);
  EXPECT_FALSE(job.tied_embeddings);
  EXPECT_TRUE(job_from({{"family", "gpt"},
                        {"layers", "2"},
                        {"hidden", "64"},
                        {"heads", "4"},
                        {"vocab", "256"},
                        {"sequence", "128"},
                        {"global-batch", "8"}})
                  .tied_embeddings);
}

TEST(InitJob, RefusesWhatIsMissingOrWrong) {
  EXPECT_NE(refused([] { job_from({}); }).find("--based-on is required"), std::string::npos);
  EXPECT_NE(refused([] {
              job_from({{"layers", "2"}});
            }).find("--hidden is required"),
            std::string::npos);
  EXPECT_NE(refused([] {
              job_from({{"based-on", "llama3-8b"}, {"layers", "x"}});
            }).find("--layers"),
            std::string::npos);
  EXPECT_NE(refused([] {
              job_from({{"based-on", "llama3-8b"}, {"heads", "5"}});
            }).find("they must divide hidden"),
            std::string::npos);
  EXPECT_NE(refused([] { job_from({{"based-on", "llama9"}}); }).find("llama9"), std::string::npos);
}

// Every preset makes a file that reads back, and sources cover what is left.
TEST(InitCluster, MakesOneOfEveryPreset) {
  for (const Preset& preset : cluster_presets()) {
    const std::string name(preset.name);
    const Cluster known = read_cluster(name);
    Cluster made = cluster_from({{"based-on", name}, {"name", name}});
    if (!known.nodes) {
      EXPECT_EQ(made, known) << name;
    }
    EXPECT_EQ(cluster_from({{"based-on", name}, {"nodes", "1"}}).nodes, 1) << name;
    for (std::int64_t devices = 1; devices <= known.devices_per_node; devices *= 2) {
      const std::string count = std::to_string(devices);
      if (known.devices_per_node % devices != 0) continue;
      EXPECT_EQ(cluster_from({{"based-on", name},
                              {"nodes", "2"},
                              {"devices-per-node", count},
                              {"network", "25 Gbit/s"}})
                    .levels.back()
                    .bandwidth,
                parse_bytes_per_second("25 Gbit/s"))
          << name;
    }
  }
}

TEST(InitCluster, FewerDevicesHaveFewerLinks) {
  const Cluster nvl = cluster_from({{"based-on", "h100-nvl-94gb"}, {"devices-per-node", "2"}});
  ASSERT_EQ(nvl.levels.size(), 2u) << "PCIe joins nobody whom the bridge does not";
  EXPECT_EQ(nvl.levels[0].name, "NVLink bridge");
  EXPECT_EQ(nvl.levels[1].name, "InfiniBand");
  EXPECT_NE(source_of(nvl, "/levels/1/bandwidth").find("2-8-5"), std::string::npos)
      << "the source moved along";
  EXPECT_EQ(source_of(nvl, "/devices_per_node"),
            "Given to planner init, --devices-per-node 2, 2026-06-30");
  const Cluster mi300x = cluster_from({{"based-on", "mi300x-192gb"}, {"devices-per-node", "4"}});
  EXPECT_DOUBLE_EQ(mi300x.levels[0].bandwidth.value(), 3 * 64e9) << "links to three others";
  const Cluster one =
      cluster_from({{"based-on", "dgx-h100-80gb"}, {"devices-per-node", "1"}, {"nodes", "1"}});
  EXPECT_TRUE(one.levels.empty());
  EXPECT_TRUE(one.efficiency && one.efficiency->levels.empty());
}

TEST(InitCluster, JoinsNodesThatThePresetDoesNot) {
  const Cluster made =
      cluster_from({{"based-on", "rtx-4090"}, {"nodes", "4"}, {"network", "25 Gbit/s"}});
  EXPECT_EQ(made.nodes, 4);
  ASSERT_EQ(made.levels.size(), 2u);
  EXPECT_EQ(made.levels[1].bandwidth, parse_bytes_per_second("25 Gbit/s"));
  EXPECT_EQ(source_of(made, "/levels/1/bandwidth"),
            "Given to planner init, --network 25 Gbit/s, 2026-06-30");
}

// Eight devices share a card: each has an eighth of it.
TEST(InitCluster, DevicesShareCards) {
  const Cluster made = cluster_from({{"based-on", "dgx-h100-80gb"},
                                     {"nodes", "64"},
                                     {"network", "100 Gbit/s"},
                                     {"cards-per-node", "1"}});
  EXPECT_EQ(made.levels[1].bandwidth, parse_bytes_per_second("12.5 Gbit/s"));
  EXPECT_NE(source_of(made, "/levels/1/bandwidth").find("--cards-per-node 1 for 8 devices"),
            std::string::npos);
  const Cluster four = cluster_from({{"based-on", "h100"},
                                     {"nodes", "2"},
                                     {"devices-per-node", "4"},
                                     {"network", "200 Gbit/s"},
                                     {"cards-per-node", "2"}});
  EXPECT_EQ(four.levels[1].bandwidth, parse_bytes_per_second("100 Gbit/s"));
}

TEST(InitCluster, KindsOfNetworksHaveTheirLatencyAndShare) {
  const Answers asked = {{"based-on", "dgx-h100-80gb"}, {"nodes", "8"}, {"network", "100 Gbit/s"}};
  const auto of_kind = [&](const char* kind) {
    Answers answers = asked;
    answers["network-kind"] = kind;
    return cluster_from(answers);
  };
  for (const NetworkKind& kind : network_kinds()) {
    const Cluster made = of_kind(kind.key.c_str());
    EXPECT_EQ(made.levels[1].name, kind.name);
    EXPECT_EQ(made.levels[1].latency, kind.latency);
    EXPECT_EQ(made.efficiency->levels[1].bandwidth_fraction, kind.bandwidth_fraction);
    EXPECT_NE(
        source_of(made, "/efficiency/levels/1/bandwidth_fraction").find(kind.sources[1].document),
        std::string::npos);
  }
  EXPECT_LT(of_kind("ethernet").efficiency->levels[1].bandwidth_fraction,
            of_kind("roce").efficiency->levels[1].bandwidth_fraction);
  const Cluster desk = cluster_from({{"based-on", "rtx-4090"},
                                     {"nodes", "4"},
                                     {"network", "25 Gbit/s"},
                                     {"network-kind", "ethernet"}});
  EXPECT_EQ(desk.levels[1].network, "ethernet") << "the share follows from it";
  EXPECT_NE(refused([&] {
              of_kind("token ring");
            }).find("efa-2020, efa-2024, ethernet, infiniband, roce"),
            std::string::npos);
}

TEST(InitCluster, OversubscribedSwitchesAreALevel) {
  const Answers asked = {{"based-on", "dgx-h100-80gb"},
                         {"nodes", "64"},
                         {"network", "400 Gbit/s"},
                         {"nodes-per-switch", "16"},
                         {"oversubscription", "4:1"}};
  const Cluster made = cluster_from(asked);
  ASSERT_EQ(made.levels.size(), 3u);
  EXPECT_EQ(made.levels[1].devices, 128);
  EXPECT_EQ(made.levels[1].bandwidth, parse_bytes_per_second("400 Gbit/s"));
  EXPECT_EQ(made.levels[2].devices, 0);
  EXPECT_EQ(made.levels[2].bandwidth, parse_bytes_per_second("100 Gbit/s"));
  EXPECT_EQ(made.efficiency->levels[2], made.efficiency->levels[1]);
  EXPECT_NE(source_of(made, "/levels/2/bandwidth").find("--oversubscription 4:1"),
            std::string::npos);
  const auto with = [&](const char* key, const char* value) {
    Answers answers = asked;
    if (std::string(value).empty()) {
      answers.erase(key);
    } else {
      answers[key] = value;
    }
    return refused([&] { cluster_from(answers); });
  };
  EXPECT_NE(with("oversubscription", "").find("go together"), std::string::npos);
  EXPECT_NE(with("oversubscription", "1:2").find("2:1"), std::string::npos);
  EXPECT_NE(with("nodes-per-switch", "64").find("all 64 nodes"), std::string::npos);
}

TEST(InitCluster, MixesDevices) {
  const Cluster a100 = read_cluster("dgx-a100-80gb");
  const Cluster made = cluster_from(
      {{"based-on", "dgx-h100-80gb"}, {"nodes", "2"}, {"with", "dgx-a100-80gb:1,dgx-a100-40gb:3"}});
  EXPECT_EQ(made.nodes, 6);
  ASSERT_EQ(made.other_devices.size(), 2u);
  EXPECT_EQ(made.other_devices[0].device, a100.device);
  EXPECT_EQ(made.other_devices[0].first_node, 2);
  EXPECT_EQ(made.other_devices[1].first_node, 3);
  EXPECT_EQ(made.other_devices[1].nodes, 3);
  EXPECT_EQ(made.levels, a100.levels) << "the slower network of both";
  EXPECT_EQ(source_of(made, "/other_devices/0/device/memory"), source_of(a100, "/device/memory"));
  EXPECT_EQ(source_of(made, "/levels/1/bandwidth"), source_of(a100, "/levels/1/bandwidth"));
  const auto refused_with = [](const char* with, const char* nodes) {
    return refused([&] {
      cluster_from({{"based-on", "dgx-h100-80gb"}, {"nodes", nodes}, {"with", with}});
    });
  };
  EXPECT_NE(refused_with("dgx-a100-80gb:1", "any").find("--nodes"), std::string::npos);
  EXPECT_NE(refused_with("dgx-a100-80gb", "2").find("dgx-a100-80gb:2"), std::string::npos);
  EXPECT_NE(refused_with("g4dn-t4:1", "2").find("wired otherwise"), std::string::npos);
  EXPECT_NE(refused_with("mi355x:1", "2").find("efficiency"), std::string::npos);
}

TEST(InitCluster, RefusesWhatIsNotKnown) {
  EXPECT_NE(refused([] { cluster_from({}); }).find("--based-on is required"), std::string::npos);
  EXPECT_NE(refused([] {
              cluster_from({{"based-on", "rtx-4090"}, {"nodes", "2"}});
            }).find("--network is required"),
            std::string::npos);
  EXPECT_NE(refused([] {
              cluster_from({{"based-on", "rtx-4090"}, {"network", "fast"}});
            }).find("--network"),
            std::string::npos);
  EXPECT_NE(refused([] {
              cluster_from({{"based-on", "dgx-h100-80gb"}, {"devices-per-node", "16"}});
            }).find("planner import topology"),
            std::string::npos);
}

TEST(InitFramework, StatesItsBase) {
  const std::string text =
      init_text(InitKind::framework,
                take_usual(InitKind::framework, {{"based-on", "torchtitan"}, {"name", "ours"}}));
  const auto framework = parse_framework(text, "ours", all_frameworks());
  ASSERT_TRUE(framework);
  EXPECT_EQ(framework->name, "ours");
  EXPECT_EQ(framework->can, framework_by_name("torchtitan").can);
  EXPECT_NE(refused([] {
              init_text(InitKind::framework, {{"based-on", "torchtitan"}, {"name", "torchtitan"}});
            }).find("has this name"),
            std::string::npos);
}

// A blank line takes the usual answer, and a refused one is asked for again.
TEST(InitQuestions, AreAskedOnATerminal) {
  std::istringstream in("llama3-8b\n2048\nmany\n64\n\nsmall\n");
  std::ostringstream out;
  const Answers answers = ask(InitKind::job, {}, in, out);
  EXPECT_EQ(answers.at("sequence"), "2048");
  EXPECT_EQ(answers.at("global-batch"), "64");
  EXPECT_EQ(answers.at("precision"), "bf16");
  EXPECT_NE(out.str().find("tokens of a sequence [8192]: "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("found many"), std::string::npos) << out.str();
  EXPECT_EQ(parse_job(init_text(InitKind::job, answers), "job").name, "small");
  std::istringstream ended("llama3-8b\n");
  EXPECT_THROW(ask(InitKind::job, {}, ended, out), UsageError);
}

}  // namespace
}  // namespace plimsoll
