// Files of settings of other planners: what they say, what is refused, and damaged files.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "interop/imports/imported.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

/// The values of github.com/calculon-ai/calculon, validation/gpt3-175B_seqsel.json, with the keys
/// that later versions added.
constexpr const char* kExecution = R"({
  "num_procs": 64, "tensor_par": 8, "pipeline_par": 8, "data_par": 1,
  "tensor_par_net": 0, "pipeline_par_net": 1, "data_par_net": 1,
  "batch_size": 64, "microbatch_size": 1, "datatype": "float16",
  "fused_activation": true, "attention_type": "multihead",
  "activation_recompute": "attn_only", "pipeline_interleaving": 3,
  "optimizer_sharding": false, "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none",
  "seq_par_ag_redo": true, "data_par_overlap": false, "weight_offload": false,
  "activations_offload": false, "optimizer_offload": false, "training": true
})";
/// The values of its models/megatron-1T.json.
constexpr const char* kApplication = R"({"hidden": 25600, "feedforward": 102400, "seq_size": 2048,
  "attn_heads": 160, "attn_size": 160, "num_blocks": 128})";
/// The form that Hetu-Galvatron's search writes, for four layers on 16 devices.
constexpr const char* kGalvatron = R"({
  "pp_deg": 2, "tp_sizes_enc": "2,2,2,2", "tp_consecutive_flags": "1,1,1,1",
  "cp_sizes_enc": "1,1,1,1", "dp_types_enc": "0,0,0,0", "use_sp": "0,0,0,0",
  "checkpoint": "1,0,0,1", "global_bsz": 32, "chunks": 4, "pp_division": "1,3",
  "pipeline_type": "pipedream_flush", "default_dp_type": "zero2", "vtp": 2, "vsp": 0,
  "embed_sdp": 0
})";

TEST(SettingsFile, AnExecutionOfCalculon) {
  const Imported imported = import_text(kExecution, "execution.json");
  EXPECT_EQ(imported.kind, "calculon execution 2024-02");
  EXPECT_FALSE(imported.job);
  EXPECT_EQ(imported.devices, 64);
  const Strategy strategy = parse_strategy(
      "mp=8,pp=8,virtual_stages=3,recompute=selective,sequence_parallel=true,gradient_type=computed,"
      "overlap_grad_reduce=false");
  EXPECT_EQ(strategy_text(*imported.strategy), strategy_text(strategy));
  EXPECT_EQ(imported.framework->name, "megatron-lm-2022");
  EXPECT_TRUE(imported.framework->gathers_tokens_again);
  EXPECT_TRUE(imported.unread.empty());
  EXPECT_TRUE(takes_job(kExecution));
}

TEST(SettingsFile, AnExecutionTakesItsModelFromAJob) {
  ImportGiven given;
  given.job = read_job("gpt3-175b");
  const Imported imported = import_text(kExecution, "execution.json", given);
  Job job = read_job("gpt3-175b");
  job.global_batch = 64;
  job.precision = DType::f16;
  job.loss_scale = imported.job->loss_scale;
  EXPECT_EQ(job_text(*imported.job), job_text(job));
  EXPECT_TRUE(bool(legal(*imported.job, *imported.strategy, 64)));
  EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, *imported.strategy)));
}

TEST(SettingsFile, SwitchesOfAnExecution) {
  std::string text = with(kExecution, "\"data_par\": 1", "\"data_par\": 4");
  text = with(text, "\"num_procs\": 64", "\"num_procs\": 256");
  text = with(text, "\"optimizer_sharding\": false", "\"optimizer_sharding\": true");
  text = with(text, "\"seq_par_ag_redo\": true", "\"seq_par_ag_redo\": false");
  text = with(text, "\"tensor_par_overlap\": \"none\"", "\"tensor_par_overlap\": \"ring\"");
  text = with(text, "\"data_par_overlap\": false", "\"data_par_overlap\": true");
  const Imported imported = import_text(text, "execution.json");
  EXPECT_EQ(imported.strategy->sharding_degree, 4);
  EXPECT_EQ(imported.strategy->sharding_stage, 1);
  EXPECT_TRUE(imported.strategy->overlap_grad_reduce);
  EXPECT_TRUE(imported.framework->async_tensor_parallel);
  EXPECT_TRUE(imported.framework->overlap_grad_reduce);
  EXPECT_FALSE(imported.framework->gathers_tokens_again);
  text = with(kExecution, "\"rs_ag\"", "\"p2p_rs_ag\"");
  text = with(text, "\"seq_par_ag_redo\": true", "\"seq_par_ag_redo\": false");
  EXPECT_TRUE(import_text(text, "execution.json").strategy->split_boundary);
}

TEST(SettingsFile, AnApplicationOfCalculonIsAJob) {
  const Imported imported = import_text(kApplication, "megatron-1T.json");
  Job job = read_job("megatron-1t");
  job.name = "megatron-1T";
  job.global_batch = 256;
  job.precision = DType::bf16;
  job.loss_scale.reset();
  job.dropout = 0.1;
  job.optimizer = {};
  job.seed = 0;
  EXPECT_EQ(job_text(*imported.job), job_text(job));
  EXPECT_FALSE(imported.strategy);
  EXPECT_EQ(imported.notes.size(), 4u);
}

TEST(SettingsFile, AStrategyOfGalvatron) {
  ImportGiven given;
  EXPECT_FALSE(import_text(kGalvatron, "galvatron.json", given).strategy);
  given.devices = 16;
  const Imported imported = import_text(kGalvatron, "galvatron.json", given);
  Strategy strategy = parse_strategy(
      "mp=2,pp=2,sharding_degree=4,sharding_stage=2,micro_batch=2,layer_split=1+3,recompute=full,"
      "recompute_list=0+3");
  EXPECT_EQ(strategy_text(*imported.strategy), strategy_text(strategy));
  EXPECT_EQ(imported.framework->name, "galvatron");
  EXPECT_TRUE(imported.unread.empty());
  std::string ulysses = with(kGalvatron, "\"use_sp\": \"0,0,0,0\"", "\"use_sp\": \"1,1,1,1\"");
  ulysses = with(ulysses, "\"vsp\": 0", "\"vsp\": 1");
  ulysses = with(ulysses, "\"cp_sizes_enc\": \"1,1,1,1\", ", "");
  const Strategy exchanged = *import_text(ulysses, "galvatron.json", given).strategy;
  EXPECT_EQ(exchanged.cp, 2);
  EXPECT_EQ(exchanged.mp, 1);
  EXPECT_EQ(exchanged.context_exchange, ContextExchange::all_to_all);
}

TEST(SettingsFile, ArgumentsOfPaddleMayBeLeftOut) {
  ImportGiven given;
  given.job = read_job("llama3-8b");
  given.job->global_batch = 32;
  given.devices = 8;
  const std::string text = R"({"tensor_parallel_degree": 2, "pipeline_parallel_degree": 1,
    "sharding": "stage1", "bf16": true, "fp16_opt_level": "O2",
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})";
  const Imported imported = import_text(text, "args.json", given);
  EXPECT_EQ(imported.strategy->mp, 2);
  EXPECT_EQ(imported.strategy->sharding_degree, 4);
  EXPECT_EQ(imported.strategy->micro_batch, 2);
  EXPECT_EQ(imported.job->sequence, given.job->sequence);
  EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, *imported.strategy)));
  try {
    import_text(with(text, ", \"fp16_opt_level\": \"O2\"", ""), "args.json", given);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "args.json: fp16_opt_level O2 is missing; the other flags need it");
  }
}

struct Refused {
  const char* text;
  const char* piece;
  const char* other;
  const char* message;
};

TEST(SettingsFile, SaysWhatIsNotStated) {
  const Refused cases[] = {
      {kGalvatron, "2,2,2,2", "2,2,4,4",
       "f.json: at line 2: tp_sizes_enc 2,2,4,4: layer 0 has 2 and layer 2 has 4; a strategy has one "
       "for all layers"},
      {kGalvatron, "\"0,0,0,0\", \"use_sp\"", "\"0,1,0,0\", \"use_sp\"",
       "f.json: at line 3: dp_types_enc 0,1,0,0: layer 0 has 0 and layer 1 has 1; a strategy has one "
       "for all layers"},
      {kGalvatron, "\"vtp\": 2", "\"vtp\": 1",
       "f.json: at line 5: vtp 1: it states mp 1; tp_sizes_enc 2,2,2,2 (line 2) states 2"},
      {kGalvatron, "1,0,0,1", "1,0,0,2",
       "f.json: at line 4: checkpoint 1,0,0,2: layer 3 has 2; 0 (kept) or 1 (recomputed) is required"},
      {kGalvatron, "\"chunks\": 4", "\"chunks\": 3",
       "f.json: 32 sequences do not divide into 3 micro-batches on each of 4 data-parallel "
       "ranks"},
      {kGalvatron, "\"1,3\"", "\"1,2,1\"",
       "f.json: at line 4: pp_division 1,2,1: it has 3 numbers; one for each of the 2 stages is "
       "required"},
      {kExecution, "\"data_par\": 1", "\"data_par\": 2",
       "f.json: 2 data-parallel ranks are stated; the other degrees leave 1"},
      {kExecution, "\"optimizer_offload\": false", "\"optimizer_offload\": true",
       "f.json: at line 9: optimizer_offload true: the time of copies to the host is not modelled; "
       "false is required"},
      {kExecution, "\"training\": true", "\"training\": false",
       "f.json: at line 9: training false: inference is not planned; true is required"},
      {kExecution, "float16", "float8",
       "f.json: at line 4: datatype float8: one of float16, bfloat16, float32 is required"},
      {kApplication, "\"attn_size\": 160", "\"attn_size\": 128",
       "f.json: at line 2: attn_size 128: attn_size 160 follows from the other flags"},
  };
  ImportGiven given;
  for (const Refused& one : cases) {
    given.devices = one.text == kGalvatron ? std::optional<std::int64_t>(16) : std::nullopt;
    try {
      import_text(with(one.text, one.piece, one.other), "f.json", given);
      ADD_FAILURE() << one.other << " is read";
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), one.message);
    }
  }
}

constexpr const char* kValuePieces[] = {
    "null",  "true", "-1",      "0",       "1e300", "99999999999999999999",
    "[]",    "{}",   "\"\"",    ",",       "1,1,1", "{\"a\": 1}",
    "\"x\"", ":",    "4194304", "[1, [2]]"};

/// Gives some key another value.
std::string with_another_value(Random& random, std::string text) {
  const std::size_t colon = text.find(": ", random() % text.size());
  if (colon == text.npos) return text;
  const std::size_t end = text.find_first_of("\n}", colon);
  const std::size_t comma = std::min(text.find(", \"", colon), end);
  if (comma == text.npos) return text;
  return text.replace(colon + 2, comma - colon - 2,
                      kValuePieces[random() % std::size(kValuePieces)]);
}

TEST(SettingsFile, DamagedFilesAreReadOrRefused) {
  Random random(22);
  int read_anyway = 0;
  ImportGiven alone, beside;
  alone.devices = 16;
  beside.job = read_job("gpt3-175b");
  for (const char* whole : {kExecution, kApplication, kGalvatron}) {
    for (int i = 0; i < 4000; ++i) {
      const std::string text =
          i % 3 == 0 ? with_another_value(random, whole) : damaged(random, whole, kValuePieces);
      if (!takes_job(text)) continue;
      try {
        import_text(text, "f.json", i % 2 == 0 ? alone : beside);
        ++read_anyway;
      } catch (const InputError&) {
        continue;
      }
    }
  }
  EXPECT_GT(read_anyway, 300);
}

}  // namespace
}  // namespace plimsoll
