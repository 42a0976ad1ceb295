// Configuration files of frameworks as jobs, strategies and frameworks.
#include "imports/framework_document.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "imports/imported.h"
#include "passes/strategy/strategy.h"

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

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
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
  EXPECT_TRUE(read_file.strategy->sequence_parallel);
  EXPECT_EQ(read_file.strategy->fp8, Fp8::rowwise);
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

TEST(FrameworkDocument, FaultsNameLineKeyAndWhatIsAllowed) {
  struct Fault {
    std::string text, message;
    std::optional<std::int64_t> devices = 256;
  };
  const Fault faults[] = {
      {with(kTorchtitan, "flavor = \"70B\"", "flavor = \"71B\""),
       "train.toml: at line 7: model.name+model.flavor llama3 71B: one of llama3 8B, llama3 70B, "
       "llama3 405B, llama3 debugmodel is required"},
      {kTorchtitan,
       "train.toml: at line 22: parallelism.data_parallel_shard_degree -1: the ranks that are left "
       "follow from --devices, which is required",
       std::nullopt},
      {with(kTorchtitan, "seq_len = 8192", "seq_len = \"long\""),
       "train.toml: at line 17: training.seq_len long: a number is required"},
      {with(kTorchtitan, "tensor_parallel_degree", "tensor_paralel_degree"),
       "train.toml: at line 23: parallelism.tensor_paralel_degree 8: no such key is known; did you "
       "mean parallelism.tensor_parallel_degree?"},
      {with(kTorchtitan, "steps = 1000", "enable_cpu_offload = true"),
       "train.toml: at line 18: training.enable_cpu_offload true: the time of copies to the host "
       "is not modelled"},
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

/// Changes bytes, numbers, lines and signs of a document.
std::string damaged(std::mt19937_64& random, std::string text) {
  const char* const pieces[] = {"-1",   "0",    "99999999999", "1e9", "\"",   "[",   "]",
                                "null", "${x}", "&a ",         "*a",  "\n",   ": ",  " = ",
                                "true", "{",    "}",           "#",   "!!x ", "\xff"};
  for (std::size_t changes = 1 + random() % 4; changes > 0; --changes) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text.erase(at, 1 + random() % 30);
        break;
      case 1:
        text.insert(at, pieces[random() % std::size(pieces)]);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 60));
        break;
      default:
        text[at] = char('0' + random() % 10);
    }
    if (text.empty()) text = " ";
  }
  return text;
}

TEST(FrameworkDocument, DamagedFilesAreReadOrRefused) {
  std::mt19937_64 random(11);
  int read_anyway = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = damaged(random, kTorchtitan);
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
