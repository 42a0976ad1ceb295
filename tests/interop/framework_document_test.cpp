// Configuration files of frameworks as jobs, strategies and frameworks.
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/graph.h"
#include "interop/imports/imported.h"
#include "interop/imports/readers.h"
#include "passes/strategy/strategy.h"
#include "tests/interop/changed_text.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

const std::string kTorchtitan = R"(# Llama 3 70B on 256 devices
[job]
dump_folder = "./outputs"

[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]

[optimizer]
name = "AdamW"
lr = 1.5e-4

[training]
local_batch_size = 4
global_batch_size = 512
seq_len = 8192
steps = 1000

[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 8

[activation_checkpoint]
mode = "full"

[compile]
enable = true

[quantize.linear.float8]
recipe_name = "rowwise"
)";

Imported read(const std::string& text, std::optional<std::int64_t> devices = {}) {
  ImportGiven given;
  given.devices = devices;
  return import_text(text, "train.toml", given);
}

TEST(FrameworkDocument, TorchtitanStatesAllThree) {
  const Imported read_file = read(kTorchtitan, 256);
  EXPECT_EQ(read_file.kind, "torchtitan 2026-02");
  EXPECT_EQ(read_file.job->layers, 80);
  EXPECT_EQ(read_file.job->kv_heads, 8);
  EXPECT_EQ(read_file.job->vocab, 128256);
  EXPECT_EQ(read_file.job->global_batch, 512);
  EXPECT_EQ(read_file.job->precision, DType::bf16);
  EXPECT_EQ(read_file.framework->name, "torchtitan-compiled");
  EXPECT_EQ(read_file.devices, 256);
  EXPECT_EQ(strategy_summary(*read_file.strategy).substr(0, 60),
            strategy_summary(
                parse_strategy("mp=8,dp=2,sharding_degree=16,sharding_stage=3,micro_batch=4"))
                .substr(0, 60));
  EXPECT_TRUE(read_file.strategy->tokens.sequence_parallel);
  EXPECT_EQ(read_file.strategy->precision.fp8, Fp8::rowwise);
  EXPECT_EQ(read_file.strategy->recompute, Recompute::full);
  EXPECT_EQ(read_file.unread, (std::vector<std::string>{"job.dump_folder", "training.steps"}));
}

TEST(FrameworkDocument, TorchtitanPipelines) {
  std::string text = with(kTorchtitan, "tensor_parallel_degree = 8",
                          "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"1F1B\"\n"
                          "pipeline_parallel_microbatch_size = 2");
  text = with(text, "local_batch_size = 4\nglobal_batch_size = 512", "local_batch_size = 8");
  const Imported imported = read(text, 128);
  EXPECT_EQ(imported.job->global_batch, 8 * 32);
  EXPECT_EQ(imported.strategy->micro_batch, 2);
  EXPECT_EQ(imported.strategy->sharding_stage, 1);
  // 80 layers with both ends counted as one: 82 over 4 stages.
  EXPECT_EQ(layers_per_part(*imported.job, *imported.strategy),
            (std::vector<std::int64_t>{20, 21, 20, 19}));
  const std::string split =
      with(text, "pipeline_parallel_schedule = \"1F1B\"",
           "module_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\"]]");
  EXPECT_THROW(read(split, 128), InputError);
}

/// Its counter wraps a layer where n divides the layer's number, counted from 1.
TEST(FrameworkDocument, TorchtitanRecomputesEachNthLayer) {
  const auto recomputed = [](const std::string& option) {
    return field_text(*read(with(kTorchtitan, "mode = \"full\"", option), 256).strategy,
                      "recompute_list");
  };
  EXPECT_EQ(recomputed("mode = \"selective\"\nselective_ac_option = \"30\""), "29+59");
  EXPECT_EQ(recomputed("mode = \"selective\"\nselective_ac_option = \"80\""), "79");
  for (const char* all : {"0", "1"})
    EXPECT_EQ(
        recomputed("mode = \"selective\"\nselective_ac_option = \"" + std::string(all) + "\""),
        "all");
  EXPECT_EQ(recomputed("").substr(0, 6), "1+3+5+");  // its default
  try {
    recomputed("mode = \"selective\"\nselective_ac_option = \"81\"");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"train.toml", "line 27", "selective_a", "81", "80"}));
  }
}

TEST(FrameworkDocument, TorchtitanRepeatsAllUnlessItStopsEarly) {
  EXPECT_TRUE(read(kTorchtitan, 256).framework->parallelism.recompute_repeats_all);
  const std::string early =
      with(kTorchtitan, "mode = \"full\"", "mode = \"full\"\nearly_stop = true");
  EXPECT_FALSE(read(early, 256).framework->parallelism.recompute_repeats_all);
  const std::string none = with(kTorchtitan, "mode = \"full\"", "mode = \"none\"");
  EXPECT_EQ(*read(none, 256).framework, framework_by_name("torchtitan-compiled"));
}

/// Settings of converters that are not named change nothing (train_configs/qwen3_0.6b.toml), and a
/// compiled loss leaves the model as it is (deepseek_v3_671b.toml).
TEST(FrameworkDocument, TorchtitanReadsSettingsWithoutEffect) {
  const std::string converters = "[quantize.linear.float8]\nrecipe_name = \"rowwise\"\n";
  const std::string unused =
      "[float8]\nenable_fsdp_float8_all_gather = true\n"
      "precompute_float8_dynamic_scale_for_fsdp = true\nfilter_fqns = [\"output\", \"router.gate\"]\n"
      "moe_fqns = [\"experts\"]\n[quantize.linear.mx]\nfilter_fqns = [\"output\"]\n";
  const Imported plain =
      read(with(with(kTorchtitan, "converters = [\"float8\"]\n", ""), converters, unused), 256);
  EXPECT_EQ(plain.strategy->precision.fp8, Fp8::none);
  EXPECT_TRUE(plain.unknown.empty());
  EXPECT_TRUE(plain.notes.empty());
  const Imported gathered = read(
      with(kTorchtitan, converters, converters + "enable_fsdp_float8_all_gather = true\n"), 256);
  EXPECT_EQ(gathered.strategy->precision.fp8, Fp8::rowwise);
  EXPECT_TRUE(gathered.unknown.empty());
  EXPECT_EQ(gathered.notes.size(), 1u);
  const auto framework = [](const std::string& components) {
    return read(with(kTorchtitan, "enable = true", "enable = true\ncomponents = " + components),
                256)
        .framework->name;
  };
  EXPECT_EQ(framework("[\"loss\"]"), "torchtitan");
  EXPECT_EQ(framework("[\"model\"]"), "torchtitan-compiled");
  EXPECT_EQ(framework("[\"model\", \"loss\"]"), "torchtitan-compiled");
}

/// Names of May 2025: training.compile, training.batch_size and a converter as a text.
TEST(FrameworkDocument, TorchtitanHadOtherNames) {
  std::string text = with(kTorchtitan, "[compile]\nenable = true\n", "");
  text =
      with(text, "local_batch_size = 4\nglobal_batch_size = 512", "batch_size = 4\ncompile = true");
  text = with(text, "[\"float8\"]", "\"float8\"");
  const Imported imported = read(text, 256);
  EXPECT_EQ(imported.framework->name, "torchtitan-compiled");
  EXPECT_EQ(imported.strategy->micro_batch, 4);
  EXPECT_EQ(imported.job->global_batch, 4 * 32);
  EXPECT_EQ(imported.strategy->precision.fp8, Fp8::rowwise);
  EXPECT_EQ(read(with(text, "compile = true", "compile = false"), 256).framework->name,
            "torchtitan");
  const std::string pipeline =
      with(text, "tensor_parallel_degree = 8", "pipeline_parallel_degree = 4");
  EXPECT_THROW(read(pipeline, 128), InputError);
}

/// The buckets of gradients are the framework's own.
TEST(FrameworkDocument, TorchtitanHasItsOwnBuckets) {
  const std::string replicas =
      with(with(kTorchtitan, "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = -1",
                "data_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1"),
           "tensor_parallel_degree = 8", "");
  EXPECT_EQ(read(replicas, 8).strategy->gradients.bucket_bytes, Bytes(100 << 20));
  EXPECT_EQ(read(kTorchtitan, 256).strategy->gradients.bucket_bytes,
            Strategy().gradients.bucket_bytes);
}

TEST(FrameworkDocument, FaultsNameLineKeyAndWhatIsAllowed) {
  struct Fault {
    std::string text, message;
    std::optional<std::int64_t> devices = 256;
  };
  const Fault faults[] = {
      {with(kTorchtitan, "flavor = \"70B\"", "flavor = \"71B\""),
       "train.toml: at line 7: model.name+model.flavor llama3 71B: one of llama3 8B, llama3 70B, "
       "llama3 405B, llama3 debugmodel, "},
      {kTorchtitan,
       "train.toml: at line 22: parallelism.data_parallel_shard_degree -1: the ranks that are left "
       "follow from --devices, which is required",
       std::nullopt},
      {with(kTorchtitan, "seq_len = 8192", "seq_len = \"long\""),
       "train.toml: at line 17: training.seq_len long: a number is required"},
      {with(kTorchtitan, "tensor_parallel_degree", "tensor_paralel_degree"),
       "train.toml: at line 23: parallelism.tensor_paralel_degree 8: no such key is known; did you "
       "mean parallelism.tensor_parallel_degree?"},
      {with(kTorchtitan, "seq_len = 8192", "seq_len = "), "train.toml: at line 17: no TOML: "},
  };
  for (const Fault& fault : faults) {
    try {
      read(fault.text, fault.devices);
      ADD_FAILURE() << fault.message;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, fault.message.size()), fault.message);
    }
  }
}

TEST(FrameworkDocument, TorchtitansModels) {
  const auto imported = [](const std::string& name, const std::string& flavor,
                           const std::optional<Job>& job) {
    ImportGiven given;
    given.devices = 8;
    given.job = job;
    return import_text("[model]\nname = \"" + name + "\"\nflavor = \"" + flavor +
                           "\"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n[parallelism]\n"
                           "data_parallel_shard_degree = -1\n",
                       "train.toml", given);
  };
  const std::pair<const char*, std::int64_t> parameters[] = {
      {"qwen3 0.6B", 596049920},          {"qwen3 8B", 8190735360},
      {"qwen3 14B", 14768307200},         {"qwen3 32B", 32762123264},
      {"deepseek_v3 16B", 15706484224},   {"deepseek_v3 236B", 235741434880},
      {"deepseek_v3 671B", 671026404352}, {"gpt_oss 20b", 20914757184},
      {"gpt_oss 120b", 116829156672}};
  for (const auto& [model, count] : parameters) {
    const std::string text = model;
    const std::size_t blank = text.find(' ');
    const Job job = *imported(text.substr(0, blank), text.substr(blank + 1), {}).job;
    EXPECT_EQ(parameter_count(build_forward(job, 1)), count) << model;
  }
  // Another flavor is JOB's model; without JOB it is refused by the names that are known.
  EXPECT_EQ(imported("qwen3", "9B", read_job("qwen3-8b")).job->layers, 36);
  try {
    imported("qwen3", "9B", {});
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("one of llama3 8B, "), std::string::npos)
        << error.what();
  }
  // A flavor that is known and another JOB contradict each other.
  EXPECT_THROW(imported("qwen3", "14B", read_job("qwen3-8b")), InputError);
}

const std::string kBridge = R"(model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  position_embedding_type: rope
  rotary_base: 500000
  rotary_percent: 1.0
  add_bias_linear: false
  gated_linear_unit: true
  activation_func: silu
  normalization: RMSNorm
  share_embeddings_and_output_weights: false
  seq_length: 8192
  vocab_size: 128256
  tensor_model_parallel_size: 4
  sequence_parallel: true
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 4
  attention_dropout: 0.0
  hidden_dropout: 0.0
train:
  micro_batch_size: 1
  global_batch_size: 128
ddp:
  use_distributed_optimizer: true
  overlap_grad_reduce: true
  overlap_param_gather: true
  bucket_size: 40000000
mixed_precision: bf16_mixed
optimizer:
  lr: 3e-4
  adam_beta2: 0.95
  weight_decay: 0.1
rng: {seed: 7}
dataset: {seq_length: "${model.seq_length}"}
profiling: {_target_: os.system, command: touch x}
)";

TEST(FrameworkDocument, MegatronBridgeStatesAllThree) {
  ImportGiven given;
  given.devices = 64;
  const Imported imported = import_text(kBridge, "train.yaml", given);
  EXPECT_EQ(imported.kind, "megatron-bridge 2026-08");
  EXPECT_EQ(imported.framework->name, "megatron-lm");
  EXPECT_EQ(imported.job->precision, DType::bf16);
  EXPECT_EQ(imported.job->seed, 7);
  EXPECT_EQ(imported.strategy->pipeline.virtual_stages, 4);
  EXPECT_EQ(imported.strategy->sharding_degree, 8);
  EXPECT_EQ(imported.strategy->gradients.bucket_bytes, Bytes(160'000'000));
  EXPECT_EQ(imported.unread, (std::vector<std::string>{"profiling._target_", "profiling.command"}));
  EXPECT_TRUE(imported.unknown.empty());
}

TEST(FrameworkDocument, MegatronBridgeStatesGatesNormsAndBiases) {
  ImportGiven given;
  given.devices = 64;
  const auto job = [&](const std::string& by) {
    return *import_text(with(kBridge,
                             "  add_bias_linear: false\n  gated_linear_unit: true\n"
                             "  activation_func: silu\n",
                             by),
                        "train.yaml", given)
                .job;
  };
  const Job gemma =
      job("  add_bias_linear: false\n  gated_linear_unit: true\n  activation_func: gelu\n"
          "  qk_layernorm: true\n  kv_channels: 256\n");
  EXPECT_EQ(gemma.activation, Activation::geglu);
  EXPECT_TRUE(gemma.qk_norm && !gemma.mlp_bias);
  EXPECT_EQ(gemma.head_size, 256);
  const Job plain =
      job("  add_bias_linear: true\n  add_qkv_bias: false\n"
          "  gated_linear_unit: false\n");
  EXPECT_EQ(plain.activation, Activation::gelu);
  EXPECT_TRUE(plain.qkv_bias && plain.out_bias && plain.mlp_bias);
  EXPECT_THROW(job("  add_bias_linear: false\n  gated_linear_unit: false\n"
                   "  activation_func: silu\n"),
               InputError);
}

/// comm_overlap sets data-parallel choices beside the distributed optimizer, and switches off what
/// needs split tokens.
TEST(FrameworkDocument, MegatronBridgesOverlapsAreRead) {
  ImportGiven given;
  given.devices = 64;
  const std::string text = with(kBridge,
                                "  overlap_grad_reduce: true\n  overlap_param_gather: true\n"
                                "  bucket_size: 40000000\n",
                                "comm_overlap: {tp_comm_overlap: true}\n");
  const Imported overlapped = import_text(text, "train.yaml", given);
  EXPECT_TRUE(overlapped.strategy->gradients.overlap);
  EXPECT_TRUE(overlapped.strategy->gathers.overlap);
  EXPECT_EQ(overlapped.strategy->gradients.bucket_bytes, Bytes(std::int64_t{512} << 20));
  EXPECT_TRUE(overlapped.framework->parallelism.overlap.async_tensor_parallel);
  const Imported whole = import_text(
      with(text, "sequence_parallel: true", "sequence_parallel: false"), "train.yaml", given);
  EXPECT_FALSE(whole.framework->parallelism.overlap.async_tensor_parallel);
  const Imported copies =
      import_text(with(text, "use_distributed_optimizer: true", "use_distributed_optimizer: false"),
                  "train.yaml", given);
  EXPECT_FALSE(copies.strategy->gradients.overlap);
}

/// Files that override a recipe have no model: it comes from a job.
TEST(FrameworkDocument, TheModelMayComeFromAJob) {
  const std::string text = "model: {tensor_model_parallel_size: 2}\ntrain: {micro_batch_size: 2}\n";
  ImportGiven given;
  given.devices = 16;
  try {
    import_text(text, "train.yaml", given);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"train.yaml", "model.vocab_size", "job"}));
  }
  given.job = read_job("llama3-8b");
  const Imported imported = import_text(text, "train.yaml", given);
  EXPECT_EQ(imported.job->layers, 32);
  EXPECT_EQ(imported.job->global_batch, given.job->global_batch);
  EXPECT_EQ(imported.strategy->mp, 2);
  EXPECT_EQ(imported.strategy->dp, 8);
}

const std::string kNemo = R"(name: gpt
trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
  gradient_clip_val: 1.0
model:
  micro_batch_size: 2
  global_batch_size: 256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 16
  hidden_dropout: 0.0
  attention_dropout: 0.0
  tokenizer: {library: megatron, type: GPT2BPETokenizer}
  megatron_amp_O2: true
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 3
  sequence_parallel: true
  data: {seq_length: "${model.encoder_seq_length}"}
  optim:
    name: distributed_fused_adam
    lr: 2e-4
    weight_decay: 0.1
    betas: [0.9, 0.95]
)";

TEST(FrameworkDocument, NemoFilesAreReadWithPlainReferences) {
  try {
    import_text(kNemo, "gpt.yaml");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"gpt.yaml", "line 17", "model.ffn_hidden_size",
                                      "${multiply:4, ${.hidden_size}}", "number"}));
  }
  const Imported imported =
      import_text(with(kNemo, "${multiply:4, ${.hidden_size}}", "8192"), "gpt.yaml");
  EXPECT_EQ(imported.kind, "nemo 1");
  EXPECT_EQ(imported.devices, 32);
  EXPECT_EQ(imported.job->family, Family::gpt);
  EXPECT_EQ(imported.job->vocab, 50257);
  EXPECT_EQ(imported.job->sequence, 2048);
  EXPECT_EQ(imported.job->optimizer.beta2, 0.95);
  EXPECT_EQ(imported.strategy->recomputed.layers, 3);
  EXPECT_EQ(imported.strategy->sharding_stage, 1);
  EXPECT_EQ(imported.strategy->sharding_degree, 4);
  const std::string modules =
      with(with(kNemo, "${multiply:4, ${.hidden_size}}", "8192"), "granularity: full",
           "granularity: selective\n  recompute_modules: [core_attn, layernorm]");
  EXPECT_EQ(field_text(*import_text(modules, "gpt.yaml").strategy, "recompute_modules"), "norms");
}

constexpr const char* kDocumentPieces[] = {
    "-1", "0",  "99999999999", "1e9", "\"",   "[", "]", "null", "${x}", "&a ",
    "*a", "\n", ": ",          " = ", "true", "{", "}", "#",    "!!x ", "\xff"};

TEST(FrameworkDocument, DamagedFilesAreReadOrRefused) {
  Random random(11);
  int read_anyway = 0;
  const std::string* const files[] = {&kTorchtitan, &kBridge, &kNemo};
  for (int i = 0; i < 6000; ++i) {
    const std::string text = damaged(random, *files[i % 3], kDocumentPieces);
    if (!looks_like_framework_document(text)) continue;
    try {
      read(text, 256);
      ++read_anyway;
    } catch (const InputError&) {
      continue;
    }
  }
  EXPECT_GT(read_anyway, 100);
}

}  // namespace
}  // namespace plimsoll
