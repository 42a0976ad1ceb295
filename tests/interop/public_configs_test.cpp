// Public models' config.json files become jobs with exactly the parameters of these models.
//
// The files of data/ are written by hand with the keys and the sizes of the released files; their
// counts are arithmetic over the shapes, by a program that shares nothing with this one. The source
// of each is in data/parameters.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "graph/graph.h"
#include "interop/imports/architecture.h"
#include "interop/imports/imported.h"

namespace plimsoll {
namespace {

const std::filesystem::path kData =
    std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/interop/data";

struct Public {
  std::string file;
  std::int64_t parameters;
  ImportGiven given;  ///< the sequence, where the usual one is longer than the model's window
};

std::vector<Public> public_configs() {
  const Json list = read_json(kData / "parameters.json");
  std::vector<Public> all;
  for (const Json& row : list) {
    if (!row.contains("file")) continue;  // a preset without a config.json
    const std::int64_t mtp = row.value("mtp", std::int64_t{0});
    Public config{row.at("file"), row.at("parameters").get<std::int64_t>() + mtp, {}};
    if (row.contains("sequence")) config.given.sequence = row.at("sequence");
    if (row.contains("dropout")) config.given.dropout = row.at("dropout");
    all.push_back(std::move(config));
  }
  return all;
}

TEST(PublicConfigs, HaveExactlyThePublishedParameters) {
  const std::vector<Public> all = public_configs();
  EXPECT_GE(all.size(), 150u);
  for (const Public& config : all) {
    SCOPED_TRACE(config.file);
    const Imported imported = import_file(kData / config.file, config.given);
    EXPECT_EQ(imported.kind, "Hugging Face config.json");
    ASSERT_TRUE(imported.job);
    EXPECT_EQ(parameter_count(build_forward(*imported.job, 1)), config.parameters);
    EXPECT_EQ(imported.job->name, std::filesystem::path(config.file).stem());
    EXPECT_FALSE(imported.strategy || imported.framework || imported.devices);
  }
}

TEST(PublicConfigs, EveryFileHasACountAndEveryArchitectureAFile) {
  std::vector<std::string> named;
  for (const Public& config : public_configs()) named.push_back(config.file);
  named.push_back("parameters.json");
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    const std::string name = entry.path().filename();
    EXPECT_NE(std::ranges::find(named, name), named.end()) << name;
  }
  for (const Architecture& known : architectures()) EXPECT_FALSE(known.source.empty());
}

TEST(PublicConfigs, ABecomesAJobFileThatReadsBack) {
  for (const Public& config : public_configs()) {
    SCOPED_TRACE(config.file);
    const Imported imported = import_file(kData / config.file, config.given);
    EXPECT_EQ(parse_job(job_text(*imported.job), "job.json"), *imported.job);
  }
}

TEST(PublicConfigs, SayNothingThatIsLeftUnreadButWhatIsKnownToBe) {
  // Settings of serving, of tokens of pictures and of tasks, which no training step reads.
  const auto unread = [](const char* file) { return import_file(kData / file).unread; };
  EXPECT_EQ(unread("llama-2-7b.json"), std::vector<std::string>{});
  EXPECT_EQ(unread("llama-3.1-405b.json"), std::vector<std::string>{});
  EXPECT_EQ(unread("mistral-7b-v0.1.json"), std::vector<std::string>{});
  EXPECT_EQ(unread("gpt2.json"), std::vector<std::string>{});
  EXPECT_EQ(unread("stablelm-2-1.6b.json"), std::vector<std::string>{});
  EXPECT_EQ(unread("granite-3.1-2b.json"), std::vector<std::string>{});
  EXPECT_EQ(unread("smollm3-3b.json"), std::vector<std::string>{});
  EXPECT_EQ(unread("bert-base-uncased.json"), std::vector<std::string>{"gradient_checkpointing"});
  EXPECT_EQ(unread("falcon3-7b.json"), std::vector<std::string>{"activation"});
}

TEST(PublicConfigs, JobsHaveWhatTheFamilyHas) {
  const auto job = [](const char* file) { return *import_file(kData / file).job; };
  EXPECT_TRUE(job("qwen2.5-7b.json").qkv_bias);
  EXPECT_TRUE(job("glm-4-9b.json").qkv_bias);
  EXPECT_FALSE(job("llama-3-8b.json").qkv_bias);
  EXPECT_EQ(job("llama-3-8b.json").rotary.base, 500000);
  EXPECT_EQ(job("llama-3.2-3b.json").rotary.base, 500000);  // in rope_parameters
  EXPECT_EQ(job("llama-7b.json").rotary.base, 10000);       // of before the key was there
  EXPECT_EQ(job("nemotron-4-15b.json").activation, Activation::squared_relu);
  EXPECT_EQ(job("nemotron-4-15b.json").norm, NormKind::layer_norm);
  EXPECT_EQ(job("stablelm-3b.json").activation, Activation::swiglu);
  EXPECT_EQ(job("starcoder.json").kv_heads, 1);
  EXPECT_EQ(job("gpt2.json").dropout, 0.1);
  EXPECT_EQ(job("gpt2.json").sequence, 1024);
  EXPECT_EQ(job("llama-3.1-8b.json").sequence, 4096);
  EXPECT_EQ(job("bert-base-uncased.json").token_types, 2);
  EXPECT_TRUE(job("bert-base-uncased.json").pooler);
}

TEST(PublicConfigs, JobsHaveWhatDescendantsOfTheFamilyChanged) {
  const auto job = [](const char* file) { return *import_file(kData / file).job; };
  EXPECT_TRUE(job("qwen3-32b.json").qk_norm);
  EXPECT_EQ(job("qwen3-32b.json").head_size, 128);
  EXPECT_EQ(job("qwen3-8b.json").head_size, 0);  // hidden / heads is 128
  EXPECT_EQ(job("mistral-nemo-12b.json").head_size, 128);
  EXPECT_EQ(job("gemma-7b.json").activation, Activation::geglu);
  EXPECT_EQ(job("glm-4-9b-0414.json").norm_place, NormPlace::around);
  EXPECT_EQ(job("glm-4-9b-0414.json").rotary.fraction, 0.5);
  EXPECT_EQ(job("gpt-neox-20b.json").mlp_input, MlpInput::own_norm);
  EXPECT_EQ(job("gpt-neox-20b.json").rotary.fraction, 0.25);
  EXPECT_TRUE(job("gpt-neox-20b.json").out_bias && job("gpt-neox-20b.json").mlp_bias);
  EXPECT_EQ(job("falcon-7b.json").mlp_input, MlpInput::shared_norm);
  EXPECT_EQ(job("falcon-7b.json").kv_heads, 1);
  EXPECT_EQ(job("falcon-40b.json").mlp_input, MlpInput::own_norm);
  EXPECT_EQ(job("falcon-40b.json").kv_heads, 8);
  EXPECT_EQ(job("starcoder2-7b.json").activation, Activation::gelu);
  EXPECT_EQ(job("starcoder2-7b.json").window, 4096);
  EXPECT_EQ(job("mistral-7b-v0.1.json").window, 4096);
  EXPECT_EQ(job("mistral-7b-v0.3.json").window, 0);
  const double mscale = 0.1 * std::log(128.0) + 1;
  EXPECT_NEAR(job("mistral-small-4.json").factors.scores, mscale * mscale, 1e-12);
}

TEST(PublicConfigs, AnMlpBesideExpertsIsAsWideAsTheModel) {
  const Job arctic = *import_file(kData / "snowflake-arctic.json").job;
  EXPECT_EQ(arctic.mlp_input, MlpInput::own_norm);
  EXPECT_EQ(arctic.experts->dense_ffn_hidden, 7168);
  EXPECT_EQ(arctic.experts->balance_loss, 0.001);
}

TEST(PublicConfigs, LastLayersMayBeDense) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "ernie-tail.json";
  Json config = read_json(kData / "ernie-4.5-21b-a3b.json");
  const auto experts = [&](std::int64_t last) {
    config["moe_layer_end_index"] = last;
    write_file_atomically(file, config.dump());
    return *import_file(file).job->experts;
  };
  EXPECT_EQ(experts(-1), *import_file(kData / "ernie-4.5-21b-a3b.json").job->experts);
  EXPECT_EQ(experts(27), experts(-1));
  std::vector<bool> pattern(28, true);
  pattern[26] = pattern[27] = false;
  EXPECT_EQ(experts(25).pattern, pattern);
  EXPECT_EQ(experts(25).dense_layers, 1);
  EXPECT_THROW(experts(28), InputError);
}

TEST(PublicConfigs, SinksAlibiAndPlainNormsAreRead) {
  const auto job = [](const char* file) { return *import_file(kData / file).job; };
  const Job oss = job("gpt-oss-20b.json"), scout = job("llama-4-scout.json"),
            dbrx = job("dbrx.json"), bloom = job("bloom.json");
  EXPECT_TRUE(oss.sinks && oss.qkv_bias && oss.out_bias);
  EXPECT_TRUE(oss.experts->bias && oss.experts->router_bias);
  EXPECT_EQ(oss.window_pattern, (std::vector{true, false}));
  EXPECT_TRUE(scout.qk_l2_norm && scout.window_chunks && scout.experts->scaled_input);
  EXPECT_EQ(scout.window_pattern, (std::vector{true, true, true, false}));
  EXPECT_EQ(dbrx.norm, NormKind::layer_norm);
  EXPECT_EQ(dbrx.rotary.base, 500000);
  EXPECT_FALSE(dbrx.norm_bias);
  EXPECT_TRUE(bloom.alibi && bloom.embedding_norm && bloom.mlp_bias);
  EXPECT_TRUE(job("falcon-rw-1b.json").alibi);
  EXPECT_TRUE(job("mpt-7b.json").alibi && !job("mpt-7b.json").norm_bias);
  EXPECT_FALSE(job("falcon-7b.json").alibi);
}

TEST(PublicConfigs, SomeLayersHaveExperts) {
  const auto experts = [](const std::string& changes) {
    const std::filesystem::path scratch = std::filesystem::path(testing::TempDir()) / "moe.json";
    Json config = read_json(kData / "qwen1.5-moe-a2.7b.json");
    config.update(Json::parse(changes));
    write_file_atomically(scratch, config.dump());
    return *import_file(scratch).job->experts;
  };
  EXPECT_EQ(import_file(kData / "llama-4-maverick.json").job->experts->pattern,
            (std::vector{false, true}));
  EXPECT_TRUE(experts("{}").pattern.empty() && experts("{}").shared_gate);
  EXPECT_EQ(experts(R"({"decoder_sparse_step": 3})").pattern, (std::vector{false, false, true}));
  const std::vector<bool> listed = experts(R"({"mlp_only_layers": [0, 5]})").pattern;
  ASSERT_EQ(listed.size(), 24u);
  EXPECT_EQ(std::ranges::count(listed, false), 2);
  EXPECT_FALSE(listed[0] || listed[5]);
}

TEST(PublicConfigs, WindowsOfSomeLayersAndCapsAreRead) {
  const auto job = [](const char* file) { return *import_file(kData / file).job; };
  const Job gemma2 = job("gemma-2-9b.json"), gemma3 = job("gemma-3-27b-text.json");
  EXPECT_EQ(gemma2.window, 4096);
  EXPECT_EQ(gemma2.window_pattern, (std::vector{true, false}));
  EXPECT_EQ(gemma2.rotary.window_base, 0);
  EXPECT_EQ(gemma2.score_cap, 50);
  EXPECT_EQ(gemma2.logit_cap, 30);
  EXPECT_EQ(gemma2.norm_place, NormPlace::around);
  EXPECT_EQ(gemma3.window, 1024);
  EXPECT_EQ(gemma3.window_pattern, (std::vector{true, true, true, true, true, false}));
  EXPECT_EQ(gemma3.rotary.window_base, 10000);
  EXPECT_EQ(gemma3.rotary.base, 1e6);
  EXPECT_EQ(gemma3.score_cap, 0);
  const Job olmo = job("olmo-2-32b.json");
  EXPECT_TRUE(olmo.qk_norm && olmo.qk_norm_across_heads);
  EXPECT_EQ(olmo.norm_place, NormPlace::after);
}

TEST(PublicConfigs, JobsOfNewerTypesHaveTheirLayers) {
  const auto job = [](const char* file) { return *import_file(kData / file).job; };
  const Job olmo = job("olmo-3-7b.json"), exaone = job("exaone-4.0-32b.json"),
            command = job("command-a.json"), phi = job("phi-3.5-moe.json");
  for (const Job& three_of_four : {olmo, exaone, command}) {
    EXPECT_EQ(three_of_four.window, 4096);
    EXPECT_EQ(three_of_four.window_pattern, (std::vector{true, true, true, false}));
  }
  EXPECT_TRUE(olmo.qk_norm_across_heads && !exaone.qk_norm_across_heads && exaone.qk_norm);
  EXPECT_EQ(olmo.norm_place, NormPlace::after);
  EXPECT_EQ(exaone.norm_place, NormPlace::after);
  EXPECT_EQ(command.mlp_input, MlpInput::shared_norm);
  EXPECT_TRUE(phi.head_bias && phi.qkv_bias && phi.out_bias && phi.norm_bias);
  EXPECT_TRUE(job("seed-oss-36b.json").qkv_bias && !job("seed-oss-36b.json").out_bias);
  EXPECT_EQ(job("dots-llm1.json").window, 0);
  EXPECT_EQ(job("dots-llm1.json").experts->score, RouterScore::sigmoid);
  EXPECT_TRUE(job("olmoe-1b-7b.json").qk_norm_across_heads);
  EXPECT_EQ(job("glm-4.7-flash.json").latent->value, 256);
  EXPECT_EQ(job("hunyuan-a13b.json").experts->shared_ffn_hidden, 3072);
  EXPECT_TRUE(job("qwen3-vl-235b-a22b.json").experts->normalized);
}

/// Presets of this project have the same shapes by another way.
TEST(PublicConfigs, EqualThePresets) {
  const std::pair<const char*, const char*> pairs[] = {{"gpt2.json", "gpt2-small"},
                                                       {"gpt2-xl.json", "gpt2-xl"},
                                                       {"llama-2-7b.json", "llama2-7b"},
                                                       {"llama-3-8b.json", "llama3-8b"},
                                                       {"llama-3.1-405b.json", "llama3-405b"},
                                                       {"mistral-7b-v0.1.json", "mistral-7b"},
                                                       {"qwen2.5-7b.json", "qwen2-7b"},
                                                       {"nemotron-4-15b.json", "nemotron4-15b"},
                                                       {"bert-base-uncased.json", "bert-base"}};
  for (const auto& [file, preset] : pairs) {
    SCOPED_TRACE(file);
    Job stated = read_job(preset);
    const Job read = *import_file(kData / file).job;
    // No config.json says these.
    stated.name = read.name, stated.sequence = read.sequence;
    stated.global_batch = read.global_batch, stated.optimizer = read.optimizer;
    stated.dropout = read.dropout, stated.seed = read.seed;
    EXPECT_EQ(read, stated);
  }
}

}  // namespace
}  // namespace plimsoll
