// Jobs: presets and their published sizes, exact round trips, every refusal.
#include "models/job/job.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

const std::filesystem::path kPresets =
    std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "models/presets/jobs";
const std::filesystem::path kNano =
    std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json";

/// Projections of attention in one layer, with the norms of latents.
std::int64_t latent_by_hand(std::int64_t h, std::int64_t heads, const Latent& latent) {
  const std::int64_t width = latent.nope + latent.rope;
  const std::int64_t queries =
      latent.q_rank > 0 ? h * latent.q_rank + latent.q_rank + latent.q_rank * heads * width
                        : h * heads * width;
  return queries + h * (latent.kv_rank + latent.rope) + latent.kv_rank +
         latent.kv_rank * heads * (latent.nope + latent.value) + heads * latent.value * h;
}

/// Weights by hand, as the papers count them. Grouped queries: kv_heads of them.
std::int64_t llama_by_hand(const Job& job) {
  const std::int64_t h = job.hidden, d = job.head_size > 0 ? job.head_size : h / job.heads,
                     q = d * job.heads, kv = d * job.kv_heads, f = job.ffn_hidden;
  const bool gated = job.activation == Activation::swiglu || job.activation == Activation::geglu;
  const std::int64_t ups = gated ? 2 : 1;
  std::int64_t biases = job.qkv_bias ? q + 2 * kv : 0;
  if (job.out_bias) biases += h;
  if (job.mlp_bias) biases += ups * f + h;
  const std::int64_t norm = job.norm == NormKind::layer_norm && job.norm_bias ? 2 * h : h;
  std::int64_t norms = job.norm_place == NormPlace::around ? 4 : 2;
  if (job.mlp_input == MlpInput::shared_norm) norms = 1;
  const std::int64_t attention =
      job.latent ? latent_by_hand(h, job.heads, *job.latent) : 2 * h * q + 2 * h * kv;
  const std::int64_t layer = attention + biases + (ups + 1) * h * f + norms * norm +
                             (!job.qk_norm               ? 0
                              : job.qk_norm_across_heads ? q + kv
                                                         : 2 * d) +
                             (job.sinks ? job.heads : 0);
  std::int64_t layers = job.layers * layer;
  if (job.experts) {  // in place of most layers' MLPs: the router, and three matrices of each
                      // expert
    const Experts& experts = *job.experts;
    const std::int64_t narrow = experts.latent_hidden > 0 ? experts.latent_hidden : h;
    const std::int64_t whole = experts.shared_ffn_hidden + experts.dense_ffn_hidden;
    std::int64_t own = h * experts.count + 3 * narrow * experts.count * experts.ffn_hidden +
                       3 * h * whole - 3 * h * f;
    if (experts.latent_hidden > 0) own += 2 * h * experts.latent_hidden;
    if (experts.dense_ffn_hidden > 0) own += (norms + 1) / 2 * norm;
    if (experts.shared_gate) own += h;
    if (experts.bias) own += experts.count * (2 * experts.ffn_hidden + h);
    if (experts.router_bias) own += experts.count;
    for (std::int64_t layer = 0; layer < job.layers; ++layer) {
      const auto& of = experts.pattern;
      const bool mixed = of.empty() || of[std::size_t(layer) % of.size()];
      if (layer >= experts.dense_layers && mixed) layers += own;
    }
  }
  return (job.tied_embeddings ? 1 : 2) * job.vocab * h + layers + norm +
         (job.embedding_norm ? norm : 0) + (job.head_bias ? job.vocab : 0);
}

/// Post-norm layer: query, key, value and output, feed-forward, two norms.
std::int64_t encoder_layer(std::int64_t h, std::int64_t f) {
  return 4 * (h * h + h) + (h * f + f) + (f * h + h) + 4 * h;
}

std::int64_t bert_by_hand(const Job& job) {
  const std::int64_t h = job.hidden;
  std::int64_t count = (job.vocab + job.sequence + job.token_types) * h + 2 * h +
                       job.layers * encoder_layer(h, job.ffn_hidden);
  if (job.pooler) count += h * h + h;
  if (!job.branch) return count + (job.tied_embeddings ? 0 : job.vocab * h);
  const std::int64_t narrow = job.branch->hidden;
  return count + h * narrow + narrow +
         job.branch->layers * encoder_layer(narrow, job.branch->ffn_hidden) + job.vocab * narrow;
}

/// Weights of a GPT with biases, by hand: embeddings, per layer qkv + proj + fc1 + fc2 + two
/// norms, final norm.
std::int64_t parameters_by_hand(const Job& job) {
  if (job.family == Family::llama) return llama_by_hand(job);
  if (job.family != Family::gpt) return bert_by_hand(job);
  const std::int64_t h = job.hidden, f = job.ffn_hidden, qkv = h + 2 * h / job.heads * job.kv_heads;
  const std::int64_t layer = (h * qkv + qkv) + (h * h + h) + (h * f + f) + (f * h + h) + 4 * h;
  const std::int64_t tables = (job.tied_embeddings ? 1 : 2) * job.vocab * h + job.sequence * h;
  return tables + job.layers * layer + 2 * h;
}

/// Returns the message of check_job, or nothing.
std::string refusal(const Job& job) {
  try {
    check_job(job, "f");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// Counts of public models, with their sources. Some are of presets; imports of config.json files
/// are held to the others, and a script to the formula (tests/scripts/public_configs_test.py).
Json published_counts() {
  Json rows = Json::array();
  const std::filesystem::path file = "tests/interop/data/parameters.json";
  for (Json& row : read_json(PLIMSOLL_SOURCE_DIR / file)) {
    if (row.contains("preset")) rows.push_back(std::move(row));
  }
  return rows;
}

TEST(JobPresets, HaveThePublishedParameterCounts) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kPresets)) {
    if (entry.path().extension() == ".json") ++files;
  }
  const Json presets = published_counts();
  EXPECT_EQ(files, presets.size()) << "every preset has a count";
  for (const Json& preset : presets) {
    const std::string name = preset.at("preset");
    const std::int64_t count = preset.at("parameters");
    const Job job = read_job(kPresets / (name + ".json"));
    EXPECT_EQ(job.name, name);
    EXPECT_EQ(parameters_by_hand(job), count) << name;
    const std::int64_t mtp = preset.value("mtp", std::int64_t{0});  // counts are without it
    EXPECT_EQ(mtp_parameter_count(job), mtp) << name;
    EXPECT_EQ(parameter_count(build_forward(job, 1)), count + mtp) << name;
    Job without_mtp = job;
    without_mtp.mtp.reset();
    EXPECT_EQ(active_parameter_count(without_mtp), preset.value("active", count)) << name;
    EXPECT_EQ(parse_job(job_text(job), "again"), job) << name;
  }
}

// A module has a layer, a product of 2 h by h and three norms of h columns. DeepSeek-V3:
// README_WEIGHTS of the released model, with 11.5 billion; GLM-4.5: what its released file has
// beside the model, two copied tables and 90 x 160 selection biases.
TEST(JobPresets, MtpModulesHaveTheParametersOfReleasedFiles) {
  EXPECT_EQ(mtp_parameter_count(read_job("deepseek-v3")), 11'610'067'968);
  EXPECT_EQ(mtp_parameter_count(read_job("glm-4.5")), 3'988'069'632);
  EXPECT_EQ(352'797'814'784 + 3'988'069'632 + std::int64_t{2} * 151'552 * 5'120 + 90 * 160,
            358'337'791'296);
  Job job = read_job("deepseek-v3");
  job.mtp->depths = 3;
  EXPECT_EQ(mtp_parameter_count(job), std::int64_t{3} * 11'610'067'968);
  EXPECT_EQ(total_layers(job), 64);
  EXPECT_EQ(parse_job(job_text(job), "again"), job);
  job.mtp.reset();
  EXPECT_EQ(mtp_parameter_count(job), 0);
}

TEST(Job, OnlyLlamaHasMtpModules) {
  Job job = read_job(kNano);
  job.mtp.emplace();
  EXPECT_EQ(refusal(job), "f: at /mtp: only family llama has MTP modules");
}

// Their bytes are in Programs (tests/runtime); they are no parameters.
TEST(Job, SelectionBiasesAreNoParameters) {
  Job job = read_job("moonlight-16b-a3b");
  const std::int64_t with = parameter_count(build_forward(job, 1));
  job.experts->selection_bias = 0;
  EXPECT_EQ(parameter_count(build_forward(job, 1)), with);
}

// Attention of DeepSeek-V3 and of DeepSeek-V2-Lite, whose queries have no latent: by the sums of
// arXiv 2405.04434 over the released sizes, with one dense layer.
TEST(Job, LatentAttentionHasTheParametersOfDeepSeek) {
  Job job = read_job("minicpm3-4b");
  job.layers = 1;
  job.hidden = 7168, job.heads = job.kv_heads = 128, job.ffn_hidden = 18432;
  job.vocab = 129280, job.tied_embeddings = false;
  job.latent = Latent{1536, 512, 128, 64, 128};
  EXPECT_EQ(refusal(job), "");
  EXPECT_EQ(head_width(job), 192);
  EXPECT_EQ(value_width(job), 128);
  const std::int64_t tables = std::int64_t{2} * 129280 * 7168 + 7168;
  const std::int64_t mlp = std::int64_t{3} * 7168 * 18432 + 2 * 7168;
  EXPECT_EQ(parameter_count(build_forward(job, 1)) - tables - mlp, 187'107'328);
  job.hidden = 2048, job.heads = job.kv_heads = 16;
  job.latent = Latent{0, 512, 128, 64, 128};
  EXPECT_EQ(parameters_by_hand(job), parameter_count(build_forward(job, 1)));
  EXPECT_EQ(parse_job(job_text(job), "again"), job);
}

TEST(Job, LatentAttentionHasSizesOfItsOwn) {
  const auto with = [](void (*change)(Job&)) {
    Job job = read_job("minicpm3-4b");
    change(job);
    return refusal(job);
  };
  EXPECT_EQ(with([](Job& job) { job.kv_heads = 8; }),
            "f: at /kv_heads: a job with latent attention has a key and a value of every head");
  EXPECT_EQ(
      with([](Job& job) { job.qk_norm = true; }),
      "f: at /qk_norm: a job with latent attention has norms of its latents, and none of heads");
  EXPECT_EQ(with([](Job& job) { job.latent->rope = 3; }),
            "f: at /latent/rope: found 3; rotary embeddings turn pairs and need an even width");
  EXPECT_NE(with([](Job& job) { job.latent->value = 0; }), "");
}

TEST(Job, SomeLayersHaveExperts) {
  const Job job = read_job("llama4-maverick");
  const Graph graph = build_forward(job, 1);
  std::vector<std::string> names;
  for (const Block& block : graph.blocks) names.push_back(block.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "layer", "expert_layer",
                                             "unturned_expert_layer", "head"}));
  EXPECT_EQ(graph.blocks[1].layers.size(), 24u);
  EXPECT_EQ(graph.blocks[2].layers[0], 1);
  Job changed = job;
  changed.experts->pattern = {false};
  EXPECT_TRUE(states(refusal(changed), {"/experts/pattern"}));
  changed = job;
  changed.experts->shared_ffn_hidden = 0;
  changed.experts->shared_gate = true;
  EXPECT_TRUE(states(refusal(changed), {"/experts/shared_gate", "shared_ffn_hidden is 0"}));
  changed.sequence = 16384;  // longer than a chunk, which layers have that turn queries and keys
  EXPECT_EQ(build_forward(changed, 1).blocks[2].name, "windowed_expert_layer");
  EXPECT_EQ(build_forward(changed, 1).blocks[3].name, "full_unturned_expert_layer");
}

TEST(Job, FieldsOfExpertsHaveTheirParameters) {
  const auto added = [](void (*change)(Experts&)) {
    Job job = read_job("dbrx"), changed = job;
    change(*changed.experts);
    EXPECT_EQ(parse_job(job_text(changed), "f"), changed);
    return parameter_count(build_forward(changed, 1)) - parameter_count(build_forward(job, 1));
  };
  constexpr std::int64_t kLayers = 40, kHidden = 6144, kFfn = 10752, kCount = 16;
  // Three matrices, and a norm with a weight.
  EXPECT_EQ(added([](Experts& experts) { experts.dense_ffn_hidden = 100; }),
            kLayers * (3 * kHidden * 100 + kHidden));
  // Experts of 1,024 columns, and two products beside them.
  EXPECT_EQ(added([](Experts& experts) { experts.latent_hidden = 1024; }),
            kLayers * (2 * kHidden * 1024 - kCount * 3 * (kHidden - 1024) * kFfn));
  EXPECT_EQ(added([](Experts& experts) { experts.balance_sequences = 4; }), 0);
  EXPECT_EQ(added([](Experts& experts) { experts.drop_overflow = true; }), 0);
  Job job = read_job("dbrx");
  job.experts->balance_sequences = 3;
  EXPECT_TRUE(states(refusal(job), {"/experts/balance_sequences", "found 3", "1024"}));
  job.experts->balance_layers = true;
  job.experts->balance_sequences = 4;
  EXPECT_TRUE(parse_job(job_text(job), "job").experts->balance_layers);
  job.experts->balance_loss = 0;
  EXPECT_TRUE(states(refusal(job), {"/experts/balance_sequences", "balance_loss is 0"}));
  job.experts->balance_sequences = 1;
  EXPECT_TRUE(states(refusal(job), {"/experts/balance_layers", "balance_loss is 0"}));
}

TEST(Job, KeysOfAttentionAndNormsThatExcludeEachOther) {
  const auto with = [](const char* preset, void (*change)(Job&)) {
    Job job = read_job(preset);
    change(job);
    return refusal(job);
  };
  EXPECT_TRUE(states(with("llama2-7b", [](Job& job) { job.norm_bias = false; }),
                     {"/norm_bias", "layer norms", "RMS norms"}));
  EXPECT_TRUE(states(with("qwen3-8b", [](Job& job) { job.qk_l2_norm = true; }),
                     {"/qk_l2_norm", "qk_norm"}));
  EXPECT_TRUE(states(with("bloom-176b", [](Job& job) { job.rotary.fraction = 0.5; }),
                     {"/rotary_fraction", "alibi"}));
  EXPECT_TRUE(states(with("minicpm3-4b", [](Job& job) { job.alibi = true; }),
                     {"/alibi", "latent attention"}));
  EXPECT_EQ(with("minicpm3-4b", [](Job& job) { job.sinks = true; }), "");
}

TEST(Job, SomeLayersHaveTheWindow) {
  Job job = read_job("gemma3-27b");
  job.layers = 8;
  const Graph graph = build_forward(job, 1);
  ASSERT_EQ(graph.blocks.size(), 4u);
  EXPECT_EQ(graph.blocks[1].name, "windowed_layer");
  EXPECT_EQ(graph.blocks[1].layers, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(graph.blocks[2].name, "full_layer");
  EXPECT_EQ(graph.blocks[2].layers, std::vector<std::int64_t>{5});
  std::vector<std::int64_t> windows;
  std::vector<double> bases;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::attention)
      windows.push_back(std::get<AttentionParams>(op.params).window);
    if (op.kind == OpKind::rotary) bases.push_back(std::get<RotaryParams>(op.params).base);
  }
  EXPECT_EQ(windows, (std::vector<std::int64_t>{1024, 0}));
  EXPECT_EQ(bases, (std::vector<double>{10000, 10000, 1e6, 1e6}));
  // A match of all layers, and one of a kind.
  EXPECT_FALSE(unmatched_group(graph, "layer"));
  EXPECT_FALSE(unmatched_group(graph, "full_layer"));
  EXPECT_TRUE(unmatched_group(graph, "moe_layer"));
  job.window = 0;
  EXPECT_TRUE(states(refusal(job), {"/window_pattern", "window"}));
}

// --group-query-attention of Megatron-LM: keys and values of fewer heads, with biases.
TEST(Job, GptMayHaveFewerKeysAndValues) {
  Job job = read_job(kNano);
  const std::int64_t whole = parameter_count(build_forward(job, 1));
  job.kv_heads = 1;
  EXPECT_EQ(refusal(job), "");
  EXPECT_EQ(parse_job(job_text(job), "again"), job);
  EXPECT_EQ(parameter_count(build_forward(job, 1)), parameters_by_hand(job));
  // With hidden 64 and 4 heads, keys and values have 48 columns fewer each in each of 4 layers.
  EXPECT_EQ(whole - parameter_count(build_forward(job, 1)), 4 * 2 * 48 * (64 + 1));
}

TEST(JobPresets, MinisAreSmallEnoughToTrainHere) {
  for (const char* name : {"gpt-mini", "llama-mini", "bert-mini", "ernie-mini"}) {
    const Job job = read_job(kPresets / (std::string(name) + ".json"));
    EXPECT_EQ(job.vocab, 256) << name;  // bytes
    EXPECT_EQ(job.precision, DType::f32) << name;
    EXPECT_GE(parameters_by_hand(job), 8'000'000) << name;
    EXPECT_LE(parameters_by_hand(job), 30'000'000) << name;
  }
}

// Per sequence of s tokens: 2 per weight and token, and 4 s^2 h of attention per layer.
TEST(Job, ForwardFlopsByHand) {
  const auto flops = [](const char* name) {
    return forward_matmul_flops_per_sequence(read_job(kPresets / (std::string(name) + ".json")))
        .value();
  };
  {
    const double s = 1024, h = 768, L = 12;
    EXPECT_EQ(flops("gpt2-small"), L * (2 * s * 12 * h * h + 4 * s * s * h) + 2 * s * h * 50257);
  }
  {
    const double s = 8192, h = 4096, kv = 1024, f = 14336;
    const double layer = 2 * s * (2 * h * h + 2 * h * kv + 3 * h * f) + 4 * s * s * h;
    EXPECT_EQ(flops("llama3-8b"), 32 * layer + 2 * s * h * 128256);
  }
  {  // the same with a window of half of the sequence: 3/4 of the causal scores, and a little
    const double s = 8192, h = 4096, kv = 1024, f = 14336, w = 4096;
    const double share = (w * s - w * (w - 1) / 2) / (s * (s + 1) / 2);
    const double layer = 2 * s * (2 * h * h + 2 * h * kv + 3 * h * f) + 4 * s * s * h * share;
    Job job = read_job(kPresets / "llama3-8b.json");
    job.window = 4096;
    const double windowed = forward_matmul_flops_per_sequence(job).value();
    EXPECT_NEAR(windowed / (32 * layer + 2 * s * h * 128256), 1, 1e-12);
    job.window = 8192;
    EXPECT_EQ(forward_matmul_flops_per_sequence(job).value(), flops("llama3-8b"));
  }
  {  // the head reads 77 of 512 positions
    const double s = 512, h = 768, predicted = 77;
    const double layer = 2 * s * 12 * h * h + 4 * s * s * h;
    EXPECT_EQ(flops("bert-base"), 12 * layer + 2 * predicted * (h * h + h * 30522));
  }
  {
    const double s = 512, h = 3072, b = 256, predicted = 77;
    const auto layer = [&](double width) { return 2 * s * 12 * width * width + 4 * s * s * width; };
    EXPECT_EQ(flops("ernie3-4b"),
              36 * layer(h) + 2 * s * h * b + 3 * layer(b) + 2 * predicted * b * 40000);
  }
}

TEST(Job, DoublesRoundTripExactly) {
  Job job = read_job(kNano);
  job.optimizer = {.learning_rate = 1.0 / 3,
                   .beta1 = 0.1 + 0.2,
                   .beta2 = 1 - 1e-15,
                   .epsilon = 5e-324,
                   .weight_decay = 2.0 / 3};
  job.clip_norm = 1e-300;
  EXPECT_EQ(parse_job(job_text(job), "again"), job);
}

TEST(Job, LeftOutKeysHaveDefaults) {
  const Job job = parse_job(R"({"name": "a", "family": "gpt", "layers": 1, "hidden": 8, "heads": 2,
      "vocab": 16, "sequence": 4, "tied_embeddings": true, "global_batch": 2, "precision": "fp32"})",
                            "f");
  EXPECT_EQ(job.kv_heads, 2);
  EXPECT_EQ(job.ffn_hidden, 32);
  EXPECT_EQ(job.optimizer, Optimizer());
  EXPECT_EQ(job.clip_norm, 1.0);
  EXPECT_EQ(job.precision, DType::f32);
}

TEST(Job, SevenHeadsAreAJob) {
  Job job = read_job(kNano);
  job.heads = job.kv_heads = 7;
  job.hidden = 56;
  EXPECT_NO_THROW(check_job(job, "f"));
}

struct JobChange {
  const char* from;
  const char* to;
  const char* message;
};

TEST(Job, Refusals) {
  const std::string text = read_file(kNano);
  const JobChange changes[] = {
      {"\"layers\": 4", "\"layers\": -4", "f: at /layers: found -4; an integer from 1"},
      {"\"layers\": 4", "\"layers\": 2.5", "f: at /layers: found 2.5; an integer from 1"},
      {"\"layers\": 4", "\"layers\": 4.0", "f: at /layers: found 4.0; an integer from 1"},
      {"\"layers\": 4", "\"layers\": \"4\"", "f: at /layers: found \"4\"; an integer from 1"},
      {"\"layers\": 4", "\"layers\": 100001", "f: at /layers: found 100001"},
      {"\"layers\": 4", "\"layers\": 4, \"layers\": 4", "f: at /layers: duplicate key"},
      {"\"layers\": 4", "\"layres\": 4", "is \"layres\" a misspelling of it?"},
      {"\"seed\": 1", "\"seed\": 1, \"sequense\": 3",
       "f: at /sequense: unknown key; did you mean \"sequence\"?"},
      {"\"seed\": 1", "\"seed\": -1", "f: at /seed: found -1"},
      {"\"heads\": 4", "\"heads\": 5", "f: at /heads: found 5 heads; they must divide hidden 64"},
      {"\"kv_heads\": 4", "\"kv_heads\": 3",
       "f: at /kv_heads: found 3; it must divide the 4 heads"},
      {"\"dropout\": 0.0", "\"dropout\": 1", "f: at /dropout: found 1; a number from 0 to below 1"},
      {"\"dropout\": 0.0", "\"dropout\": -0.1", "f: at /dropout: found -0.1"},
      {"\"family\": \"gpt\"", "\"family\": \"ernie\"", "f: at /branch: the key is missing"},
      {"\"seed\": 1", "\"seed\": 1, \"rotary_base\": 1e4", "f: at /rotary_base: unknown key"},
      {"\"family\": \"gpt\"", "\"family\": \"gtp\"", "f: at /family: found \"gtp\""},
      {"\"precision\": \"fp32\"", "\"precision\": \"f32\"", "did you mean \"fp32\"?"},
      {"\"beta1\": 0.9", "\"beta1\": 1", "f: at /optimizer/beta1: must be less than 1"},
      {"\"beta1\": 0.9", "\"beta\": 0.9", "f: at /optimizer/beta: unknown key"},
      {"\"clip_norm\": 1.0", "\"clip_norm\": -1", "f: at /clip_norm: found -1"},
      {"\"name\": \"gpt-nano\"", "\"name\": \"\"", "f: at /name: a job needs a name"},
      {"\"sequence\": 32", "\"sequence\": 134217728", "activation elements"},
  };
  for (const JobChange& change : changes) {
    std::string changed = text;
    const std::size_t at = changed.find(change.from);
    ASSERT_NE(at, text.npos) << change.from;
    changed.replace(at, std::string(change.from).size(), change.to);
    try {
      parse_job(changed, "f");
      ADD_FAILURE() << "accepted " << change.to;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(change.message), std::string::npos)
          << change.to << ": " << error.what();
    }
  }
}

TEST(Job, RefusalsOfTheOtherFamilies) {
  const auto read = [](const char* name) { return read_job(kPresets / name); };
  Job llama = read("llama-mini.json");
  llama.kv_heads = 4;
  EXPECT_EQ(refusal(llama), "f: at /kv_heads: found 4; it must divide the 6 heads");
  llama.kv_heads = 2;
  llama.hidden = 6 * 63;
  EXPECT_NE(refusal(llama).find("heads are 63 wide"), std::string::npos);
  Job bert = read("bert-mini.json");
  const std::int64_t heads = std::exchange(bert.kv_heads, 2);
  EXPECT_NE(refusal(bert).find("only families gpt and llama have other kv_heads"),
            std::string::npos);
  bert.kv_heads = heads;
  bert.mask_probability = 0;
  EXPECT_NE(refusal(bert).find("/mask_probability"), std::string::npos);
  bert.mask_probability = 0.15;
  bert.token_types = 129;
  EXPECT_NE(refusal(bert).find("/token_types"), std::string::npos);
  Job ernie = read("ernie-mini.json");
  ernie.branch->heads = 3;
  EXPECT_EQ(refusal(ernie), "f: at /branch/heads: found 3 heads; they must divide hidden 128");
  ernie.branch->heads = 2;
  ernie.tied_embeddings = true;
  EXPECT_NE(refusal(ernie).find("/tied_embeddings"), std::string::npos);
  ernie.tied_embeddings = false;
  ernie.branch.reset();
  EXPECT_NE(refusal(ernie).find("family ernie has a branch"), std::string::npos);
}

TEST(Job, MaskedPositionsAreAFixedNumber) {
  Job job = read_job(kPresets / "bert-base.json");
  EXPECT_EQ(masked_positions(job), 77);  // 15 % of 512
  job.sequence = 2;
  job.mask_probability = 0.01;
  EXPECT_EQ(masked_positions(job), 1);
}

TEST(Job, TotalsAreBoundedWhereSizesAloneAreNot) {
  Job job = read_job(kNano);
  job.layers = 100'000;
  job.hidden = 1 << 20;
  job.ffn_hidden = 1 << 22;
  EXPECT_THROW(check_job(job, "f"), InputError);
}

TEST(Job, TruncatedAndMissingFiles) {
  const std::string text = read_file(kNano);
  EXPECT_THROW(parse_job(text.substr(0, text.size() / 2), "f"), InputError);
  EXPECT_THROW(read_job("no-such-file.json"), InputError);
}

}  // namespace
}  // namespace plimsoll
