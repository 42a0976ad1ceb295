// Descriptions of inputs: kinds by content, figures that follow, and sources.
#include "planner/describe/describe_input.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "models/presets/presets.h"
#include "passes/strategy/strategy.h"
#include "tests/plan/example_plan.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

/// Returns the value of a fact of a section of the description's JSON.
Json fact(const Description& description, const char* section, const char* key) {
  return description_json(description).at(section).at(key);
}

Job job_of(const char* name) { return parse_job(*find_preset(job_presets(), name), name); }
Cluster cluster_named(const char* name) {
  return parse_cluster(*find_preset(cluster_presets(), name), name);
}

/// Returns the message of read_input, or nothing.
std::string refusal_of(const std::string& name) {
  try {
    read_input(name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(InputKinds, AreFoundByContent) {
  const std::pair<InputKind, const std::vector<Preset>&> presets[] = {
      {InputKind::job, job_presets()},
      {InputKind::cluster, cluster_presets()},
      {InputKind::framework, framework_presets()},
      {InputKind::calibration, calibration_presets()}};
  std::set<std::string_view> names;
  for (const auto& [kind, of] : presets) {
    for (const Preset& preset : of) {
      EXPECT_EQ(kind_of(preset.text, "f"), kind) << preset.name;
      EXPECT_EQ(read_input(std::string(preset.name)).kind, kind) << preset.name;
      EXPECT_TRUE(names.insert(preset.name).second) << preset.name << " is of two kinds";
    }
  }
  EXPECT_EQ(kind_of(plan_text(example_plan()), "f"), InputKind::plan);
  EXPECT_EQ(kind_of(strategy_text(Strategy()), "f"), InputKind::strategy);
  EXPECT_EQ(kind_of(R"({"mp": 2})", "f"), InputKind::strategy);
  EXPECT_EQ(read_input("mp=2,pp=4").kind, InputKind::strategy);
}

TEST(InputKinds, AreRefusedWhereNothingTells) {
  EXPECT_THROW(kind_of(R"({"losses": []})", "f"), InputError);
  EXPECT_THROW(kind_of("[1]", "f"), InputError);
  EXPECT_NE(refusal_of("llama3-8").find("did you mean \"llama3-8b\"?"), std::string::npos);
  EXPECT_NE(refusal_of("megatron-l").find("did you mean \"megatron-lm\"?"), std::string::npos);
}

std::string refusal_by(void (*read)(std::string_view), std::string_view text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(FileKinds, AreNamedWhereAnotherIsWanted) {
  const auto job = [](std::string_view text) { parse_job(text, "f"); };
  const auto plan = [](std::string_view text) { parse_plan(text, "f"); };
  const auto cluster = [](std::string_view text) { parse_cluster(text, "f"); };
  const auto strategy = [](std::string_view text) { strategy_from_json_text(text, "f"); };
  const std::string a_job = job_text(job_of("llama3-8b"));
  EXPECT_EQ(refusal_by(job, plan_text(example_plan())), "f: this is a plan; a job is wanted");
  EXPECT_TRUE(states(refusal_by(plan, a_job), {"a job", "a plan", "planner plan"}));
  EXPECT_EQ(refusal_by(cluster, a_job), "f: this is a job; a cluster is wanted");
  EXPECT_EQ(refusal_by(strategy, a_job), "f: this is a job; a strategy is wanted");
  EXPECT_TRUE(states(refusal_by(plan, R"({"model_type": "llama"})"),
                     {"Hugging Face config.json", "a plan", "planner import"}));
  EXPECT_EQ(refusal_by(job, " \n"), "f: the file is empty; a job is wanted");
  EXPECT_NE(
      refusal_by(plan, "#!/bin/bash\ntorchrun").find("it begins with \"#!/bin/bash\"; a plan"),
      std::string::npos);
}

// LLaMA-3 8B by hand: tables of 128,256 x 4,096, 65 norms of 4,096, the rest in products.
TEST(DescribeJob, CountsParametersByKindAndBlock) {
  const Description llama = describe_job(job_of("llama3-8b"));
  EXPECT_EQ(fact(llama, "parameters", "all"), 8'030'261'248);
  EXPECT_EQ(fact(llama, "parameters", "embeddings"), 128'256 * 4'096);
  EXPECT_EQ(fact(llama, "parameters", "norms"), 65 * 4'096);
  EXPECT_EQ(fact(llama, "parameters", "biases"), 0);
  EXPECT_EQ(fact(llama, "parameters", "in_layer"),
            4'096 * (2 * 4'096 + 2 * 1'024 + 3 * 14'336) + 2 * 4'096);
  const Description qwen = describe_job(job_of("qwen2.5-0.5b"));
  EXPECT_EQ(fact(qwen, "parameters", "biases"), 24 * (896 + 2 * 128)) << "of query, key and value";
  EXPECT_EQ(fact(qwen, "parameters", "in_head"), 896) << "its table is the embedding's";
}

TEST(DescribeJob, KindsAndBlocksAddUp) {
  for (const Preset& preset : job_presets()) {
    const Job job = parse_job(preset.text, std::string(preset.name));
    const Json counts = description_json(describe_job(job)).at("parameters");
    const auto count = [&](const char* key) { return counts.at(key).get<std::int64_t>(); };
    EXPECT_EQ(
        count("embeddings") + count("weights_of_linear_layers") + count("biases") + count("norms"),
        count("all"))
        << preset.name;
    const Graph graph = build_forward(job, 1);
    std::int64_t in_blocks = 0;
    for (const Block& block : graph.blocks) {
      in_blocks += block.count * count(("in_" + block.name).c_str());
    }
    EXPECT_EQ(in_blocks, count("all")) << preset.name;
  }
}

// docs/reference/job.md, mixed precision: 2 + 4 + 4 + 8 bytes of each parameter with AdamW.
TEST(DescribeJob, CountsBytesOfState) {
  Job job = job_of("gpt2-small");
  const std::int64_t parameters = 124'439'808;
  const auto bytes = [&](const char* key) { return fact(describe_job(job), "memory", key); };
  EXPECT_EQ(bytes("parameters_bytes"), 2 * parameters);
  EXPECT_EQ(bytes("fp32_masters_bytes"), 4 * parameters);
  EXPECT_EQ(bytes("gradients_bytes"), 4 * parameters);
  EXPECT_EQ(bytes("optimizer_state_bytes"), 8 * parameters);
  EXPECT_EQ(bytes("bytes_per_parameter"), 18);
  job.precision = DType::f32;
  EXPECT_EQ(bytes("fp32_masters_bytes"), 0);
  EXPECT_EQ(bytes("bytes_per_parameter"), 16);
  job.optimizer.kind = OptimizerKind::sgd;
  EXPECT_EQ(bytes("bytes_per_parameter"), 12) << "one momentum";
}

TEST(DescribeJob, CountsWorkOfAStep) {
  const Job job = job_of("gpt2-small");
  const Description description = describe_job(job);
  EXPECT_EQ(fact(description, "work", "tokens"), 512 * 1024);
  EXPECT_DOUBLE_EQ(fact(description, "work", "FLOPs_per_token").get<double>() * 1024,
                   3 * forward_matmul_flops_per_sequence(job).value());
}

TEST(DescribeCluster, RidgePointsAndBisections) {
  const Json h100 = description_json(describe_cluster(cluster_named("dgx-h100-80gb")));
  EXPECT_DOUBLE_EQ(h100.at("device").at("ridge_point_bf16_flops_per_byte").get<double>(),
                   989.5e12 / 3350e9);
  EXPECT_DOUBLE_EQ(h100.at("levels").at(0).at("bisection_bytes_per_s").get<double>(), 4 * 450e9);
  EXPECT_TRUE(h100.at("levels").at(1).at("devices").is_null());
  EXPECT_DOUBLE_EQ(h100.at("size").at("network_of_a_node_bytes_per_s").get<double>(), 8 * 50e9);
  // Sixteen links join four devices to the other four.
  const Json mi300x = description_json(describe_cluster(cluster_named("mi300x-192gb")));
  EXPECT_DOUBLE_EQ(mi300x.at("levels").at(0).at("bisection_bytes_per_s").get<double>(), 16 * 64e9);
}

TEST(DescribeCluster, SaysWhatRatesRestOn) {
  const auto rates = [](const char* name) {
    return fact(describe_cluster(cluster_named(name)), "rates", "efficiency").get<std::string>();
  };
  EXPECT_NE(rates("dgx-a100-80gb").find("matmul fitted to"), std::string::npos);
  EXPECT_NE(rates("rtx-4090").find("not stated; means over the"), std::string::npos);
}

TEST(DescribeCluster, NamesEachSourceOnce) {
  const Cluster cluster = cluster_named("hgx-b300");
  const Json sources = description_json(describe_cluster(cluster)).at("sources");
  std::set<std::string> documents;
  std::size_t covered = 0;
  for (const Json& source : sources) {
    EXPECT_TRUE(documents.insert(source.at("document").dump() + source.at("where").dump()).second);
    covered += source.at("covers").size();
  }
  EXPECT_EQ(covered, cluster.sources.size());
  EXPECT_LT(sources.size(), cluster.sources.size());
}

TEST(DescribeFramework, SaysWhatItCanRunAndWhoSaysSo) {
  const Input ours{"ours.json",
                   R"({"name": "ours", "based_on": "bundled",
                       "can": {"pipeline": {"value": false, "source": "our launcher has none"}}})",
                   InputKind::framework};
  const Description description = describe_input(ours);
  EXPECT_EQ(fact(description, "facts", "based_on"), "bundled");
  EXPECT_EQ(fact(description, "facts", "planner_run"), false) << "only built-in ones run here";
  EXPECT_EQ(fact(description, "can", "pipeline").at("value"), false);
  EXPECT_NE(description_text(description).find("no (our launcher has none)"), std::string::npos);
  EXPECT_EQ(fact(describe_input(read_input("bundled")), "facts", "planner_run"), true);
}

TEST(DescribeCalibration, SaysWhatAFitRestsOn) {
  const Description description = describe_input(read_input("dgx-h100-80gb--megatron-lm"));
  EXPECT_EQ(fact(description, "fitted", "cluster"), "dgx-h100-80gb");
  EXPECT_GT(fact(description, "fitted", "runs").get<std::int64_t>(), 10);
  const Json value = fact(description, "values", "matmul.peak_fraction");
  EXPECT_LE(value.at("low").get<double>(), value.at("value").get<double>());
  EXPECT_EQ(value.at("basis"), "fitted");
}

TEST(DescribeStrategy, EveryChoiceHasAMeaning) {
  const Description description = describe_input(read_input("mp=2,pp=4,virtual_stages=2,cp=2"));
  EXPECT_EQ(fact(description, "strategy", "virtual_stages"), "2");
  EXPECT_EQ(fact(description, "ranks", "devices"), 16);
  for (const Fact& choice : description.sections[0].facts) {
    EXPECT_GT(choice.text.size(), choice.value.get<std::string>().size() + 10) << choice.label;
  }
}

TEST(DescribePlan, SaysWhatThePlanIsFor) {
  const Plan plan = example_plan();
  const Description description = describe_plan(plan);
  EXPECT_EQ(fact(description, "for", "job"), plan.job.name);
  EXPECT_EQ(fact(description, "for", "devices"), plan.devices);
  EXPECT_EQ(fact(description, "strategy", "pp"), std::to_string(plan.strategy.pp));
}

}  // namespace
}  // namespace plimsoll
