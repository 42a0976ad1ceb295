// Jobs: presets and their published sizes, exact round trips, every refusal.
#include "models/job/job.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"

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
  const std::int64_t norm = job.norm == NormKind::layer_norm ? 2 * h : h;
  std::int64_t norms = job.norm_place == NormPlace::around ? 4 : 2;
  if (job.mlp_input == MlpInput::shared_norm) norms = 1;
  const std::int64_t attention =
      job.latent ? latent_by_hand(h, job.heads, *job.latent) : 2 * h * q + 2 * h * kv;
  const std::int64_t layer = attention + biases + (ups + 1) * h * f + norms * norm +
                             (!job.qk_norm               ? 0
                              : job.qk_norm_across_heads ? q + kv
                                                         : 2 * d);
  std::int64_t layers = job.layers * layer;
  if (job.experts) {  // in place of most layers' MLPs: the router, and three matrices of each
                      // expert
    const Experts& experts = *job.experts;
    const std::int64_t wide = experts.count * experts.ffn_hidden + experts.shared_ffn_hidden;
    layers += (job.layers - experts.dense_layers) * (h * experts.count + 3 * h * wide - 3 * h * f);
  }
  return (job.tied_embeddings ? 1 : 2) * job.vocab * h + layers + norm +
         (job.head_bias ? job.vocab : 0);
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

struct Preset {
  const char* name;
  std::int64_t parameters;
};

TEST(JobPresets, HaveThePublishedParameterCounts) {
  const Preset presets[] = {
      {"gpt2-small", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-xl", 1'557'611'200},
      {"gpt3-1.3b", 1'315'723'264},
      {"gpt3-6.7b", 6'658'404'352},
      {"gpt3-175b", 174'615'846'912},
      {"megatron-22b", 22'074'273'792},
      {"megatron-530b", 529'600'819'200},
      {"megatron-1t", 1'008'038'758'400},
      {"gpt-mini", 10'893'312},
      {"llama2-7b", 6'738'415'616},
      {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496},
      {"llama3-405b", 405'853'388'800},
      {"mistral-7b", 7'241'732'096},
      {"qwen2-7b", 7'615'616'512},
      {"nemotron4-15b", 15'628'775'424},
      {"nemotron4-340b", 341'029'195'776},
      {"bert-base", 109'482'240},
      {"bert-large", 335'141'888},
      {"ernie3-4b", 4'216'156'160},
      {"llama-mini", 9'638'784},
      {"bert-mini", 10'943'616},
      {"ernie-mini", 11'273'600},
      {"gpt2-large", 774'030'080},
      {"llama-33b", 32'528'943'616},
      {"llama-65b", 65'285'660'672},
      {"llama2-13b", 13'015'864'320},
      {"llama2-70b", 68'976'648'192},
      {"llama3.2-1b", 1'235'814'400},
      {"llama3.2-3b", 3'212'749'824},
      {"mistral-7b-v0.3", 7'248'023'552},
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-3b", 3'085'938'688},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352},
      {"qwen2.5-72b", 72'706'203'648},
      {"phi3-mini", 3'821'079'552},
      {"phi3-medium", 13'960'238'080},
      {"phi4", 14'659'507'200},
      {"tinyllama-1.1b", 1'100'048'384},
      {"yi-6b", 6'061'035'520},
      {"yi-34b", 34'388'917'248},
      {"deepseek-llm-7b", 6'910'365'696},
      {"deepseek-llm-67b", 67'425'001'472},
      {"mistral-large-123b", 122'610'069'504},
      {"qwen1.5-110b", 111'209'914'368},
      {"smollm-1.7b", 1'711'376'384},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-32b", 32'762'123'264},
      {"mixtral-8x7b", 46'702'792'704},
      {"mixtral-8x22b", 140'620'634'112},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"glm-4.5", 352'797'814'784},
      {"ernie-4.5-21b-a3b", 21'825'436'160},
      {"mistral-nemo-12b", 12'247'782'400},
      {"gemma-7b", 8'537'680'896},
      {"gpt-neox-20b", 20'554'567'680},
      {"falcon-40b", 41'303'293'952},
      {"starcoder2-7b", 7'173'923'840},
      {"gemma2-9b", 9'241'705'984},
      {"gemma2-27b", 27'227'128'320},
      {"gemma3-27b", 27'009'346'304},
      {"olmo2-7b", 7'298'617'344},
      {"olmo2-13b", 13'716'198'400},
      {"olmo2-32b", 32'234'279'936},
      {"phi2", 2'779'683'840},
      {"minicpm3-4b", 4'073'875'968},
  };
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kPresets)) {
    if (entry.path().extension() == ".json") ++files;
  }
  EXPECT_EQ(files, std::size(presets)) << "every preset has a count here";
  for (const Preset& preset : presets) {
    const Job job = read_job(kPresets / (std::string(preset.name) + ".json"));
    EXPECT_EQ(job.name, preset.name);
    EXPECT_EQ(parameters_by_hand(job), preset.parameters) << preset.name;
    EXPECT_EQ(parameter_count(build_forward(job, 1)), preset.parameters) << preset.name;
    EXPECT_EQ(parse_job(job_text(job), "again"), job) << preset.name;
  }
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
  EXPECT_EQ(refusal(job),
            "f: at /window_pattern: it says which layers have a window, and there is none");
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

// Published as active parameters: arXiv 2401.04088 (12.9 billion), the model cards of Mixtral 8x22B
// (39) and Qwen3 (3.3 and 22), arXiv 2508.06471 (32, without the table).
TEST(JobPresets, OneTokenReadsFewerParametersWhereThereAreExperts) {
  const std::pair<const char*, std::int64_t> presets[] = {
      {"mixtral-8x7b", 12'879'925'248}, {"mixtral-8x22b", 39'152'031'744},
      {"qwen3-30b-a3b", 3'353'032'704}, {"qwen3-235b-a22b", 22'190'763'520},
      {"glm-4.5", 33'632'251'904},      {"ernie-4.5-21b-a3b", 3'352'148'480},
      {"llama3-8b", 8'030'261'248},
  };
  for (const auto& [name, active] : presets)
    EXPECT_EQ(active_parameter_count(read_job(name)), active) << name;
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

struct Change {
  const char* from;
  const char* to;
  const char* message;
};

TEST(Job, Refusals) {
  const std::string text = read_file(kNano);
  const Change changes[] = {
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
  for (const Change& change : changes) {
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
