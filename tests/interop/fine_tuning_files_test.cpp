// YAML files of trainers of adapters: axolotl's and LLaMA-Factory's state a job and a strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "graph/graph.h"
#include "interop/imports/imported.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

const std::string kAxolotl = R"(base_model: ours/8b
load_in_8bit: false
load_in_4bit: true
datasets:
  - path: ours/text
    type: alpaca
adapter: qlora
sequence_len: 4096
sample_packing: true
lora_r: 16
lora_alpha: 32
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_torch
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
weight_decay: 0.01
)";

const std::string kFactory = R"(model_name_or_path: ours/8b
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: q_proj,v_proj
dataset: ours
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
)";

/// Returns axolotl's file with this adapter, or none, with weights in the job's precision.
std::string without_4_bits(const std::string& adapter) {
  return with(with(kAxolotl, "adapter: qlora", "adapter: " + adapter), "load_in_4bit: true",
              "load_in_4bit: false");
}

Imported import_run(const std::string& text, const std::string& file = "run.yaml",
                    const char* model = "llama3-8b") {
  ImportGiven given;
  given.job = read_job(model);
  given.devices = 8;
  return import_text(text, file, given);
}

std::int64_t trained_of(const Imported& imported) {
  return trained_parameter_count(build_forward(*imported.job, 1));
}

std::string trainer_refusal(const std::string& text, const char* model = "llama3-8b") {
  try {
    import_run(text, "run.yaml", model);
    return "read";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// A change of a file that is refused: with its line, and a word of the reason.
struct RefusedChange {
  const char* piece;
  const char* other;
  const char* place;
  const char* words;
};

void expect_all_refused(const std::string& text, std::initializer_list<RefusedChange> changes) {
  for (const RefusedChange& change : changes) {
    const std::string refusal = trainer_refusal(with(text, change.piece, change.other));
    EXPECT_NE(refusal.find(change.place), std::string::npos) << change.other << ": " << refusal;
    EXPECT_NE(refusal.find(change.words), std::string::npos) << change.other << ": " << refusal;
  }
}

std::string stage_of(const Imported& imported) {
  return field_text(*imported.strategy, "sharding_stage") + " " +
         field_text(*imported.strategy, "sharding_degree");
}

std::string types_of(const Imported& imported) {
  std::string types;
  for (const char* key : {"gradient_type", "main_parameter_type", "moment_type"})
    types += field_text(*imported.strategy, key) + " ";
  return types;
}

TEST(Axolotl, StatesJobAndStrategy) {
  const Imported imported = import_run(kAxolotl);
  const Job& job = *imported.job;
  EXPECT_EQ(trained_of(imported), 41'943'040);
  EXPECT_EQ(job.adapters->rank, 16);
  EXPECT_EQ(job.adapters->scale, 2);
  EXPECT_EQ(job.adapters->dropout, 0.05);
  EXPECT_EQ(job.frozen_weights, FrozenWeights::nf4_nested);
  EXPECT_EQ(job.sequence, 4096);
  EXPECT_EQ(job.global_batch, 64);  // 8 ranks, 4 micro-batches of 2
  EXPECT_EQ(job.precision, DType::bf16);
  EXPECT_EQ(job.optimizer.learning_rate, 2e-4);
  EXPECT_EQ(job.optimizer.weight_decay, 0.01);
  EXPECT_EQ(job.clip_norm, 1);  // the trainer's default
  EXPECT_EQ(imported.framework->name, "huggingface-fsdp");
  EXPECT_EQ(stage_of(imported), "0 1");
  EXPECT_EQ(imported.strategy->micro_batch, 2);
  EXPECT_EQ(field_text(*imported.strategy, "recompute"), "full");
  EXPECT_EQ(field_text(*imported.strategy, "grad_bucket_bytes"), "25MiB");
  EXPECT_TRUE(imported.unknown.empty());
  EXPECT_TRUE(bool(legal(*imported.framework, job, *imported.strategy)));
}

TEST(Axolotl, WeightsHave4BitsOnlyIfTheFileStatesThem) {
  const auto weights = [](const std::string& text) { return import_run(text).job->frozen_weights; };
  const std::string unstated = with(kAxolotl, "load_in_4bit: true\n", "");
  EXPECT_EQ(weights(unstated), FrozenWeights::nf4_nested);
  EXPECT_EQ(weights(with(unstated, "qlora", "lora")), FrozenWeights::computed);
  EXPECT_EQ(weights(with(kAxolotl, "qlora", "lora")), FrozenWeights::nf4_nested);
  EXPECT_EQ(weights(with(kAxolotl, "datasets:",
                         "bnb_config_kwargs:\n  bnb_4bit_use_double_quant: false\ndatasets:")),
            FrozenWeights::nf4);
}

TEST(Axolotl, WithoutAnAdapterAllParametersAreTrained) {
  const std::string text = without_4_bits("");
  const Imported imported = import_run(text);
  EXPECT_FALSE(imported.job->adapters);
  EXPECT_EQ(imported.job->frozen_weights, FrozenWeights::computed);
  // A job with adapters is trained as the file states it.
  ImportGiven given;
  given.job = import_run(kAxolotl).job;
  EXPECT_FALSE(import_text(text, "run.yaml", given).job->adapters);
}

TEST(Axolotl, FsdpIsReadInBothSpellings) {
  const auto stage = [](const std::string& keys) {
    return stage_of(import_run(with(kAxolotl, "datasets:", keys + "\ndatasets:")));
  };
  EXPECT_EQ(stage("fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n"
                  "  fsdp_offload_params: false\n  fsdp_transformer_layer_cls_to_wrap: Layer"),
            "3 8");
  EXPECT_EQ(stage("fsdp: [shard_grad_op, auto_wrap]"), "2 8");
  EXPECT_EQ(stage("fsdp_version: 2\nfsdp_config:\n  transformer_layer_cls_to_wrap: Layer"), "3 8");
  EXPECT_EQ(stage("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: false"), "3 8");
  EXPECT_EQ(stage("fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP"), "2 8");
}

TEST(Axolotl, TheDeepSpeedFileStatesTheRest) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "axolotl";
  std::filesystem::create_directories(folder);
  write_file_atomically((folder / "zero2.json").string(),
                        R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"},
  "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto", "train_batch_size": "auto"})");
  const std::string text =
      with(with(kAxolotl, "qlora", "lora"), "load_in_4bit: true", "deepspeed: zero2.json");
  const Imported imported = import_run(text, (folder / "run.yaml").string());
  EXPECT_EQ(imported.framework->name, "deepspeed");
  EXPECT_EQ(stage_of(imported), "2 8");
  EXPECT_EQ(imported.strategy->micro_batch, 2);
  EXPECT_EQ(imported.job->global_batch, 64);
  EXPECT_EQ(trained_of(imported), 41'943'040);
  EXPECT_EQ(field_text(*imported.strategy, "recompute"), "full");
  EXPECT_EQ(imported.job->clip_norm, 1);
  EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, *imported.strategy)));
  EXPECT_NE(trainer_refusal(text).find("deepspeed zero2.json: no such file"), std::string::npos);
  const Imported shared = import_run(with(text, "tf32: false", "context_parallel_size: 2"),
                                     (folder / "run.yaml").string());
  EXPECT_EQ(field_text(*shared.strategy, "context_exchange"), "all_to_all");
  // bitsandbytes' optimizer takes the place of DeepSpeed's, unless its file states one.
  const std::string narrow = with(text, "adamw_torch", "adamw_bnb_8bit");
  const Imported of_script = import_run(narrow, (folder / "run.yaml").string());
  EXPECT_EQ(types_of(of_script), "f32 f32 block8 ");
  EXPECT_TRUE(bool(legal(*of_script.framework, *of_script.job, *of_script.strategy)));
  write_file_atomically((folder / "zero2.json").string(),
                        R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}})");
  try {
    import_run(narrow, (folder / "run.yaml").string());
    ADD_FAILURE() << "two optimizers";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("its moments have fp32"), std::string::npos)
        << error.what();
  }
}

TEST(Axolotl, WhatIsNotModelledIsRefusedAtItsLine) {
  expect_all_refused(
      kAxolotl,
      {{"load_in_8bit: false", "load_in_8bit: true", "line 2: load_in_8bit true", "4 bits"},
       {"load_in_4bit: true", "load_in_4bit: false", "line 3: load_in_4bit false", "qlora"},
       {"adapter: qlora", "adapter: ia3", "line 7: adapter ia3", "lora or qlora"},
       {"adapter: qlora", "adapter:", "line 3: load_in_4bit true", "need an adapter"},
       {"lora_r: 16", "peft_use_dora: true", "line 10: peft_use_dora true", "DoRA"},
       {"lora_r: 16", "peft_layers_to_transform: [0]", "line 10: peft_layers_to_transform 0",
        "all layers"},
       {"lora_r: 16", "unfrozen_parameters: [^lm_head]", "line 10: unfrozen_parameters ^lm_head",
        "frozen"},
       {"lora_r: 16", "rl: dpo", "line 10: rl dpo", "loss of a language model"},
       {"lora_r: 16\n", "", "lora_r is required", ""},
       {"lora_target_linear: true\n", "", "lora_target_modules is required", ""},
       {"lora_target_linear: true", "lora_target_modules: [x_proj]",
        "line 13: lora_target_modules x_proj", "q_proj"},
       {"adamw_torch", "lion_8bit", "line 16: optimizer lion_8bit", "AdamW"},
       {"checkpointing: true", "checkpointing: offload_disk",
        "line 20: gradient_checkpointing offload_disk", "copies to disk"}});
}

TEST(Axolotl, ActivationsInTheHostsMemoryAreRead) {
  const std::string plain = "gradient_checkpointing: true";
  for (const auto& [stated, percent] : std::vector<std::pair<std::string, std::int64_t>>{
           {plain, 0},
           {"gradient_checkpointing: offload", 100},
           {plain + "\nactivation_offloading: true", 100},
           {plain + "\nactivation_offloading: false", 0}}) {
    std::string text = kAxolotl;
    text.replace(text.find(plain), plain.size(), stated);
    const Imported imported = import_run(text);
    EXPECT_EQ(imported.strategy->offloaded.percent, percent) << stated;
    EXPECT_EQ(imported.strategy->recompute, Recompute::full) << stated;
  }
}

TEST(Axolotl, PagedOptimizersHaveMomentsOnTheHost) {
  const std::string full = without_4_bits("");
  for (const auto& [name, types] : std::vector<std::pair<std::string, std::string>>{
           {"paged_adamw_32bit", "computed none bf16 "},
           {"paged_adamw", "computed none bf16 "},
           {"paged_adamw_8bit", "computed none block8 "}}) {
    const Imported imported = import_run(with(full, "adamw_torch", name));
    EXPECT_TRUE(imported.strategy->optimizer.paged) << name;
    EXPECT_EQ(types_of(imported), types) << name;
  }
  EXPECT_FALSE(import_run(full).strategy->optimizer.paged);
}

const std::string kFsdp = "fsdp_version: 2\nfsdp_config:\n  transformer_layer_cls_to_wrap: Layer\n";

TEST(Axolotl, ParametersHave16BitsUnlessFsdpHasThemInFp32) {
  const std::string full = without_4_bits("");
  const auto types = [&](const std::string& text) { return types_of(import_run(text)); };
  EXPECT_EQ(types(full), "computed none bf16 ");
  EXPECT_EQ(types(with(full, "adamw_torch", "adamw_bnb_8bit")), "computed none block8 ");
  const std::string sharded = with(full, "datasets:", kFsdp + "datasets:");
  EXPECT_EQ(types(sharded), "f32 f32 f32 ");
  EXPECT_EQ(types(with(sharded, "adamw_torch", "adamw_torch_8bit")), "f32 f32 block8 ");
  EXPECT_EQ(types(with(sharded, "bf16: auto", "bf16: full")), "computed none bf16 ");
  EXPECT_EQ(types(with(full, "bf16: auto", "fp16: true\nbf16: false")), "f32 f32 f32 ");
  EXPECT_EQ(types(kAxolotl), "f32 f32 f32 ");  // adapters
}

// A job has no SGD of 16-bit parameters without masters.
TEST(Axolotl, SgdNeedsMasters) {
  const std::string full = with(without_4_bits(""), "adamw_torch", "sgd");
  EXPECT_NE(trainer_refusal(full).find("optimizer sgd: parameters that are trained have 16 bits"),
            std::string::npos);
  const Imported wide = import_run(with(full, "datasets:", kFsdp + "datasets:"));
  EXPECT_EQ(wide.job->optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(wide.job->optimizer.momentum, 0);
  EXPECT_EQ(types_of(wide), "f32 f32 f32 ");
  EXPECT_EQ(import_run(with(kAxolotl, "adamw_torch", "sgd")).job->optimizer.kind,
            OptimizerKind::sgd);  // of adapters
}

TEST(Axolotl, AdafactorHasWholeTensors) {
  const std::string text = with(kAxolotl, "adamw_torch", "adafactor");
  const Imported imported = import_run(text);
  EXPECT_EQ(imported.job->optimizer.kind, OptimizerKind::adafactor);
  EXPECT_EQ(imported.strategy->optimizer.flatten, Flatten::none);
  EXPECT_EQ(imported.strategy->sharding_stage, 0);
  EXPECT_NE(trainer_refusal(with(text, "datasets:", kFsdp + "datasets:")).find("Adafactor"),
            std::string::npos);
}

TEST(Axolotl, ParametersMayBeOnTheHost) {
  const std::string offload = "  offload_params: true\n";
  const Imported imported = import_run(with(kAxolotl, "datasets:", kFsdp + offload + "datasets:"));
  EXPECT_TRUE(imported.strategy->gathers.offload);
  EXPECT_EQ(imported.strategy->optimizer.offload_percent, 100);
  const Imported full =
      import_run(with(without_4_bits(""), "datasets:", kFsdp + offload + "datasets:"));
  EXPECT_TRUE(full.strategy->gathers.offload);
}

TEST(Axolotl, AttentionIsEagerOnlyIfTheFileStatesIt) {
  const auto flash = [](const std::string& key) {
    return import_run(with(kAxolotl, "flash_attention: true", key))
        .framework->kernels.attention.flash;
  };
  EXPECT_TRUE(flash("attn_implementation: flash_attention_2"));
  EXPECT_TRUE(flash("attn_implementation: kernels-community/vllm-flash-attn3"));
  EXPECT_TRUE(flash("eager_attention: false"));
  EXPECT_FALSE(flash("attn_implementation: eager"));
  EXPECT_FALSE(flash("eager_attention: true"));
}

TEST(Axolotl, SequencesAreSharedByPacking) {
  const auto exchange = [](const std::string& text) {
    const Imported imported = import_run(with(text, "datasets:", kFsdp + "datasets:"));
    return field_text(*imported.strategy, "cp") + " " +
           field_text(*imported.strategy, "context_exchange");
  };
  const std::string shared = with(kAxolotl, "micro_batch_size: 2", "context_parallel_size: 2");
  EXPECT_EQ(exchange(shared), "2 all_gather");
  EXPECT_EQ(exchange(with(shared, "packing: true", "packing: false")), "2 ring");
  EXPECT_EQ(exchange(with(shared, "tf32: false", "ring_attn_func: batch_ring")), "2 ring");
}

TEST(Axolotl, WeightsThatAreLoadedIn16BitsAreOrdinary) {
  const std::string stored = "model_quantization_config: Mxfp4Config\n";
  const std::string lora = without_4_bits("lora");
  const Imported imported = import_run(with(
      lora,
      "datasets:", stored + "model_quantization_config_kwargs:\n  dequantize: true\ndatasets:"));
  EXPECT_EQ(imported.job->frozen_weights, FrozenWeights::computed);
  EXPECT_NE(trainer_refusal(with(lora, "datasets:", stored + "datasets:")).find("nf4"),
            std::string::npos);
}

TEST(Axolotl, ProductsOfEightBitsAreTensorwise) {
  const std::string text =
      with(with(without_4_bits(""), "tf32: false", "fp8: true"), "datasets:", kFsdp + "datasets:");
  EXPECT_EQ(field_text(*import_run(text).strategy, "fp8"), "tensorwise");
  EXPECT_NE(trainer_refusal(with(kAxolotl, "tf32: false", "fp8: true"))
                .find("line 19: fp8 true: products of 8 bits"),
            std::string::npos);
}

TEST(Axolotl, ExpertsNeedNamesOfModules) {
  const std::string lora = without_4_bits("lora");
  EXPECT_NE(trainer_refusal(lora, "mixtral-8x7b").find("true: the model has routers"),
            std::string::npos);
  // MiniCPM3 has latent attention (adapter_config_test.cpp), and no experts.
  EXPECT_EQ(trained_of(import_run(lora, "run.yaml", "minicpm3-4b")),
            62 * 16 * (21'280 + 3 * (2560 + 6400)));
  const std::string named =
      with(lora, "lora_target_linear: true", "lora_target_modules: [q_proj, v_proj]");
  EXPECT_TRUE(import_run(named, "run.yaml", "mixtral-8x7b").job->adapters.has_value());
}

TEST(Axolotl, ModelsThatTheFileChangesAreNotKnown) {
  const std::string text =
      with(kAxolotl, "datasets:", "overrides_of_model_config:\n  num_hidden_layers: 4\ndatasets:");
  const std::vector<UnknownFlag> unknown = {{"overrides_of_model_config.num_hidden_layers", 5}};
  EXPECT_EQ(import_run(text).unknown, unknown);
}

TEST(Axolotl, LengthsAreNoted) {
  const auto notes_lengths = [](const std::string& text) {
    const auto notes = import_run(text).notes;
    return std::ranges::any_of(notes, [](const std::string& note) {
      return note.find("shorter samples are not modelled") != std::string::npos;
    });
  };
  EXPECT_FALSE(notes_lengths(kAxolotl));
  EXPECT_TRUE(notes_lengths(with(kAxolotl, "packing: true", "packing: false")));
  EXPECT_TRUE(notes_lengths(with(kAxolotl, "sample_packing: true\n", "")));
}

TEST(Axolotl, TheFileStatesHowSamplesOfAJobArePacked) {
  ImportGiven given;
  given.job = read_job("llama3-8b");
  given.devices = 8;
  given.job->lengths = {{512, 1}, {1024, 1}};
  const auto imported = [&](const std::string& text) {
    return import_text(text, "run.yaml", given);
  };
  EXPECT_EQ(imported(kAxolotl).job->packing, Packing::packed);
  const std::string padded = with(kAxolotl, "packing: true", "packing: false");
  EXPECT_EQ(imported(padded).job->packing, Packing::padded);
  EXPECT_EQ(imported(with(kAxolotl, "sample_packing: true\n", "")).job->packing, Packing::padded);
  EXPECT_EQ(imported(padded).job->lengths.size(), 2u);
  for (const std::string& note : imported(padded).notes)
    EXPECT_EQ(note.find("shorter samples"), std::string::npos) << note;
  EXPECT_EQ(imported(kFactory).job->packing, Packing::padded);
  const auto notes_order = [&](const std::string& text) {
    return std::ranges::any_of(imported(text).notes, [](const std::string& note) {
      return note.find("see those before them") != note.npos;
    });
  };
  const std::string pretrains = with(kFactory, "stage: sft", "stage: pt");
  EXPECT_EQ(imported(pretrains).job->packing, Packing::packed);
  EXPECT_TRUE(notes_order(pretrains));
  EXPECT_TRUE(notes_order(with(kFactory, "do_train: true", "packing: true")));
  EXPECT_FALSE(notes_order(with(kFactory, "do_train: true", "neat_packing: true")));
  EXPECT_EQ(imported(with(kFactory, "do_train: true", "neat_packing: false")).job->packing,
            Packing::padded);
  EXPECT_EQ(imported(with(kFactory, "do_train: true", "neat_packing: true")).job->packing,
            Packing::packed);
}

TEST(Axolotl, UnknownKeysAreNamed) {
  const Imported imported = import_run(with(kAxolotl, "tf32: false", "tensors: false"));
  const std::vector<UnknownFlag> unknown = {{"tensors", 19}};
  EXPECT_EQ(imported.unknown, unknown);
}

TEST(LlamaFactory, StatesJobAndStrategy) {
  const Imported imported = import_run(kFactory);
  const Job& job = *imported.job;
  EXPECT_EQ(trained_of(imported), 6'815'744);
  EXPECT_EQ(job.adapters->scale, 2);  // alpha is 2 x rank
  EXPECT_EQ(job.sequence, 2048);
  EXPECT_EQ(job.global_batch, 64);
  EXPECT_EQ(job.precision, DType::bf16);
  EXPECT_EQ(job.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(job.frozen_weights, FrozenWeights::computed);
  EXPECT_EQ(imported.framework->name, "huggingface-fsdp");
  EXPECT_EQ(stage_of(imported), "0 1");
  EXPECT_EQ(field_text(*imported.strategy, "recompute"), "full");  // unless it is disabled
  EXPECT_TRUE(imported.unknown.empty());
}

TEST(LlamaFactory, DefaultsAreThoseOfItsCode) {
  const std::string text =
      with(with(kFactory, "lora_target: q_proj,v_proj\n", ""), "lora_rank: 16\n", "");
  const Imported imported = import_run(text);
  EXPECT_EQ(imported.job->adapters->rank, 8);
  EXPECT_EQ(trained_of(imported), 41'943'040 / 2);
  const std::string rooted = with(kFactory, "lora_rank: 16", "lora_rank: 16\nuse_rslora: true");
  EXPECT_EQ(import_run(rooted).job->adapters->scale, 8);  // 32 / sqrt(16)
}

TEST(LlamaFactory, QuantizationIsNestedUnlessItIsSwitchedOff) {
  const auto weights = [](const std::string& keys) {
    return import_run(with(kFactory, "do_train: true", keys)).job->frozen_weights;
  };
  EXPECT_EQ(weights("quantization_bit: 4"), FrozenWeights::nf4_nested);
  EXPECT_EQ(weights("quantization_bit: 4\ndouble_quantization: false"), FrozenWeights::nf4);
}

TEST(LlamaFactory, FullTrainsAllParameters) {
  const Imported imported = import_run(with(kFactory, "type: lora", "type: full"));
  EXPECT_FALSE(imported.job->adapters);
  EXPECT_EQ(trained_of(imported), 8'030'261'248);
}

TEST(LlamaFactory, PureBf16HasNoMasters) {
  const std::string full = with(kFactory, "type: lora", "type: full");
  EXPECT_EQ(types_of(import_run(full)), "f32 f32 f32 ");
  EXPECT_EQ(types_of(import_run(with(full, "bf16: true", "pure_bf16: true"))),
            "computed none bf16 ");
  const std::string sgd = with(full, "do_train: true", "optim: sgd");
  EXPECT_EQ(import_run(sgd).job->optimizer.kind, OptimizerKind::sgd);
  EXPECT_NE(trainer_refusal(with(sgd, "bf16: true", "pure_bf16: true")).find("16 bits here"),
            std::string::npos);
}

TEST(LlamaFactory, AttentionIsEagerOnlyIfItIsDisabled) {
  const auto flash = [](const std::string& key) {
    return import_run(with(kFactory, "do_train: true", key)).framework->kernels.attention.flash;
  };
  EXPECT_TRUE(flash("flash_attn: fa2"));
  EXPECT_FALSE(flash("flash_attn: disabled"));
}

TEST(LlamaFactory, TheModelsNameMayBeAPreset) {
  const std::string named = with(kFactory, "ours/8b", "meta-llama/Meta-Llama-3-8B-Instruct");
  const Imported imported = import_text(named, "run.yaml");
  EXPECT_EQ(imported.job->name, "llama3-8b");
  EXPECT_EQ(trained_of(imported), 6'815'744);
  EXPECT_FALSE(imported.strategy);  // no number of devices
  EXPECT_FALSE(import_text(kFactory, "run.yaml").job);
}

TEST(LlamaFactory, WhatIsNotModelledIsRefusedAtItsLine) {
  expect_all_refused(
      kFactory,
      {{"stage: sft", "stage: dpo", "line 2: stage dpo", "loss of a language model"},
       {"type: lora", "type: freeze", "line 4: finetuning_type freeze", "frozen"},
       {"do_train: true", "use_dora: true", "line 3: use_dora true", "DoRA"},
       {"do_train: true", "quantization_bit: 8", "line 3: quantization_bit 8", "4 bits"},
       {"do_train: true", "use_galore: true", "line 3: use_galore true", "AdamW"},
       {"do_train: true", "fsdp: full_shard auto_wrap", "line 3: fsdp full_shard auto_wrap",
        "accelerate"},
       {"q_proj,v_proj", "q_proj,x_proj", "line 6: lora_target q_proj,x_proj", "x_proj"}});
}

}  // namespace
}  // namespace plimsoll
