// Configs of accelerate that start DeepSpeed: inline values, and a file that they name.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "interop/imports/imported.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

const std::string kInline = R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
use_cpu: false
)";

ImportGiven beside_job() {
  ImportGiven given;
  given.job = read_job("llama3-8b");
  given.job->global_batch = 64;
  return given;
}

/// Returns what refuses the text as a config in a folder.
std::string config_refusal(const std::string& text, const std::string& file = "config.yaml") {
  try {
    import_text(text, file, beside_job());
    return "read";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(AccelerateDeepSpeed, InlineValuesAreDeepSpeeds) {
  const Imported imported = import_text(kInline, "config.yaml", beside_job());
  EXPECT_EQ(imported.kind, "accelerate with DeepSpeed 1.9");
  EXPECT_EQ(imported.devices, 8);
  EXPECT_EQ(imported.framework->name, "deepspeed");
  EXPECT_EQ(imported.strategy->optimizer.offload_percent, 100);
  EXPECT_FALSE(imported.strategy->gathers.offload);
  EXPECT_EQ(imported.job->precision, DType::bf16);
  EXPECT_EQ(imported.job->clip_norm, 1.0);
  EXPECT_EQ(imported.job->global_batch, 64);
  // 64 sequences on 8 ranks in 4 micro-batches; all else has DeepSpeed's defaults.
  EXPECT_EQ(imported.strategy->micro_batch, 2);
  EXPECT_EQ(imported.strategy->sharding_degree, 8);
  EXPECT_EQ(imported.strategy->sharding_stage, 3);
  EXPECT_EQ(imported.strategy->gathers.persistence_threshold, 100'000);
  EXPECT_TRUE(imported.strategy->gradients.overlap);
  EXPECT_TRUE(bool(legal(*imported.job, *imported.strategy, 8)));
  EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, *imported.strategy)));
  EXPECT_TRUE(imported.unread.empty());
}

TEST(AccelerateDeepSpeed, TheStageIsTwoUnlessItIsStated) {
  const std::string text = with(kInline, "  zero_stage: 3\n", "");
  EXPECT_EQ(import_text(text, "config.yaml", beside_job()).strategy->sharding_stage, 2);
}

TEST(AccelerateDeepSpeed, FaultsNameTheirLines) {
  EXPECT_EQ(
      config_refusal(with(kInline, "_device: cpu", "_device: nvme")),
      "config.yaml: at line 6: deepspeed_config.offload_optimizer_device nvme: none or cpu is "
      "required");
  EXPECT_EQ(config_refusal(with(kInline, "steps: 4", "steps: 3")),
            "config.yaml: 64 sequences do not divide into 3 micro-batches on each of 8 "
            "data-parallel ranks");
  EXPECT_EQ(
      config_refusal(with(kInline, "zero_stage: 3", "zero_stages: 3")),
      "config.yaml: at line 10: deepspeed_config.zero_stages 3: no such key is known; did you "
      "mean deepspeed_config.zero_stage?");
  EXPECT_EQ(config_refusal(with(kInline, "zero_stage: 3", "deepspeed_config_file: none.json")),
            "config.yaml: at line 10: deepspeed_config.deepspeed_config_file none.json: no such "
            "file next to this one or in the current folder");
}

TEST(AccelerateDeepSpeed, TheNamedFileIsReadBesideTheConfig) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "accelerate";
  std::filesystem::create_directories(folder);
  write_file_atomically((folder / "ds.json").string(),
                        R"({"train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000000,
    "overlap_comm": true}})");
  const std::string config = (folder / "config.yaml").string();
  const std::string text =
      "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: false\n"
      "distributed_type: 'DEEPSPEED'\nmixed_precision: bf16\nnum_processes: 16\n";
  const Imported imported = import_text(text, config, beside_job());
  EXPECT_EQ(imported.devices, 16);
  EXPECT_EQ(imported.job->precision, DType::bf16);
  EXPECT_EQ(imported.strategy->sharding_stage, 2);
  EXPECT_EQ(imported.strategy->micro_batch, 2);
  EXPECT_EQ(imported.strategy->gradients.bucket_bytes, Bytes(4'000'000));
  write_file_atomically((folder / "ds.json").string(), "{\"train_batch\": 2}");
  const std::vector<UnknownFlag> unknown = {{"train_batch of ds.json", 1}};
  EXPECT_EQ(import_text(text, config, beside_job()).unknown, unknown);
  // A fault in the named file is told with its name and line.
  write_file_atomically((folder / "ds.json").string(),
                        "{\"train_micro_batch_size_per_gpu\": 2,\n \"zero_optimization\": {\n"
                        "  \"stage\": 2, \"zero_quantized_weights\": true}}");
  EXPECT_EQ(config_refusal(text, config),
            (folder / "ds.json").string() +
                ": at line 3: zero_optimization.zero_quantized_weights true: collectives move the "
                "types of a strategy");
  // Values that both state have to be the same.
  write_file_atomically((folder / "ds.json").string(),
                        "{\"fp16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2}}");
  EXPECT_EQ(config_refusal(text, config),
            (folder / "ds.json").string() +
                ": at line 1: fp16.enabled true: it states precision fp16; what is known states "
                "bf16");
}

/// The usual file leaves the batch to the script.
TEST(AccelerateDeepSpeed, ABatchThatIsAutoIsTheJobs) {
  ImportGiven given = beside_job();
  given.devices = 8;
  const std::string text = R"({"train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})";
  const Imported imported = import_text(text, "ds.json", given);
  EXPECT_EQ(imported.job->global_batch, 64);
  EXPECT_EQ(imported.strategy->micro_batch, 1);
  const std::vector<std::string> notes = {
      "train_micro_batch_size_per_gpu auto: the script states the micro-batch; without a batch and "
      "gradient_accumulation_steps it is 1"};
  EXPECT_EQ(std::vector<std::string>(imported.notes.begin(), imported.notes.begin() + 1), notes);
  const auto with_steps = with(text, "_steps\": \"auto\"", "_steps\": 2");
  EXPECT_EQ(import_text(with_steps, "ds.json", given).strategy->micro_batch, 4);
  const auto with_both = with(with_steps, "_gpu\": \"auto\"", "_gpu\": 8");
  EXPECT_EQ(import_text(with_both, "ds.json", given).job->global_batch, 128);
  // In fp16 gradients are of that type, unless strategies of the stage add up those of
  // micro-batches.
  const auto half = with(text, "bf16", "fp16");
  EXPECT_EQ(import_text(half, "ds.json", given).strategy->precision.gradients, GradientType::f32);
  const auto first_stage = with(half, "\"stage\": 3", "\"stage\": 1");
  EXPECT_EQ(import_text(first_stage, "ds.json", given).strategy->precision.gradients,
            GradientType::computed);
}

/// transformers src/transformers/integrations/deepspeed.py fills "auto" in from the trainer.
TEST(AccelerateDeepSpeed, SaysThatNoPrecisionIsEnabled) {
  ImportGiven given = beside_job();
  given.devices = 8;
  const std::vector<std::string> notes =
      import_text(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}})",
                  "ds.json", given)
          .notes;
  EXPECT_NE(
      std::ranges::find(notes, "fp32, DeepSpeed's default, since neither bf16 nor fp16 is enabled"),
      notes.end());
}

TEST(AccelerateDeepSpeed, AutoIsTheTrainersRule) {
  ImportGiven given = beside_job();
  given.devices = 8;
  const std::string text = R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "gradient_clipping": "auto", "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}})";
  for (const DType precision : {DType::bf16, DType::f32}) {
    given.job->precision = precision;
    given.job->clip_norm = 0.5;
    const Imported imported = import_text(text, "ds.json", given);
    EXPECT_EQ(imported.job->precision, precision);
    EXPECT_EQ(imported.job->clip_norm, 0.5);
    const std::int64_t hidden = given.job->hidden;
    EXPECT_EQ(imported.strategy->gradients.bucket_bytes, Bytes(4 * hidden * hidden));
    EXPECT_EQ(field_text(*imported.strategy, "persistence_threshold"), std::to_string(10 * hidden));
  }
  // A file that states a type keeps it.
  given.job->precision = DType::bf16;
  const auto off = [&](const char* file) {
    return import_text(file, "ds.json", given).job->precision;
  };
  EXPECT_EQ(off(R"({"bf16": {"enabled": false}, "zero_optimization": {"stage": 2}})"), DType::f32);
  EXPECT_EQ(off(R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": true},
                    "zero_optimization": {"stage": 2}})"),
            DType::bf16);
  // One key is enough, whatever its name, and the trainer adds bf16.
  for (const char* key : {"bf16", "bfloat16", "fp16"}) {
    const std::string one = std::string("{\"") + key + R"(": {"enabled": "auto"},
                            "zero_optimization": {"stage": 2}})";
    EXPECT_EQ(off(one.c_str()), DType::bf16) << key;
    const auto& notes = import_text(one, "ds.json", given).notes;
    EXPECT_NE(std::ranges::find(notes, key + std::string(".enabled auto: the precision is JOB's")),
              notes.end())
        << key;
  }
  EXPECT_EQ(off(R"({"bfloat16": {"enabled": true}, "zero_optimization": {"stage": 2}})"),
            DType::bf16);
  EXPECT_EQ(off(R"({"bfloat16": {"enabled": false}, "zero_optimization": {"stage": 2}})"),
            DType::f32);
  // Without a job nothing is stated.
  const Imported alone = import_text(text, "ds.json");
  for (const std::string& note : alone.notes)
    EXPECT_EQ(note.find("precision f"), note.npos) << note;
}

TEST(AccelerateDeepSpeed, AWholeSectionIsNotAuto) {
  const auto with_section = [](const std::string& section) {
    return config_refusal("{\"train_micro_batch_size_per_gpu\": 1,\n" + section + "}", "ds.json");
  };
  EXPECT_EQ(with_section(R"("zero_optimization": "auto", "bf16": {"enabled": true})"),
            "ds.json: at line 2: zero_optimization auto: a section with its settings is required");
  EXPECT_EQ(with_section(R"("zero_optimization": {"stage": 2}, "bf16": "auto")"),
            "ds.json: at line 2: bf16 auto: a section with its settings is required");
}

TEST(AccelerateFsdp, APrecisionThatIsNotStatedIsNoted) {
  const std::string text =
      "distributed_type: FSDP\nnum_processes: 8\nnum_machines: 1\nfsdp_config:\n"
      "  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";
  for (const std::string line : {"", "mixed_precision: 'no'\n"}) {
    const Imported imported = import_text(text + line, "fsdp.yaml", beside_job());
    EXPECT_EQ(imported.job->precision, DType::f32);
    EXPECT_TRUE(std::ranges::any_of(imported.notes, [](const std::string& note) {
      return note.find("fp32") != std::string::npos;
    })) << line;
  }
}

TEST(AccelerateDeepSpeed, ShardsOfOneRankAreNone) {
  ImportGiven given = beside_job();
  given.devices = 1;
  for (const char* offload : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
    for (const char* stage : {"2", "3"}) {
      const Imported imported = import_text(std::string(R"({"bf16": {"enabled": true},
                                                "zero_optimization": {"stage": )") +
                                                stage + offload + "}}",
                                            "ds.json", given);
      EXPECT_EQ(imported.strategy->sharding_stage, 0);
      EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, *imported.strategy)));
      const std::string note =
          std::string("stage ") + stage + " over one rank shards nothing: it is stage 0";
      EXPECT_NE(std::ranges::find(imported.notes, note), imported.notes.end());
    }
  }
}

TEST(Accelerate, StrategiesOfFsdp1AreRead) {
  const auto read = [](const std::string& strategy) {
    return *import_text(
                "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\n"
                "mixed_precision: bf16\nfsdp_config:\n  fsdp_backward_prefetch: "
                "BACKWARD_PRE\n  " +
                    strategy + "\n",
                "config.yaml", beside_job())
                .strategy;
  };
  const auto states = [&](const std::string& strategy, const std::string& fields) {
    const Strategy found = read(strategy);
    EXPECT_EQ(field_text(found, "dp") + " " + field_text(found, "sharding_degree") + " " +
                  field_text(found, "sharding_stage"),
              fields)
        << strategy;
  };
  for (const char* key :
       {"fsdp_sharding_strategy: ", "fsdp_version: 1\n  fsdp_reshard_after_forward: "}) {
    const std::string strategy = key;
    states(strategy + "FULL_SHARD", "1 16 3");
    states(strategy + "SHARD_GRAD_OP", "1 16 2");
    states(strategy + "NO_SHARD", "16 1 0");
    states(strategy + "HYBRID_SHARD", "2 8 3");
    states(strategy + "HYBRID_SHARD_ZERO2", "2 8 2");
  }
  states("fsdp_sharding_strategy: 1", "1 16 3");
  states("fsdp_sharding_strategy: 2", "1 16 2");
}

// The trainer's arguments state them, and the file alone does not.
TEST(AccelerateDeepSpeed, AutoOfAStageOrADeviceIsRefused) {
  ImportGiven given = beside_job();
  given.devices = 8;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"zero_optimization": {"stage": "auto"}})", "zero_optimization.stage auto: 0, 1, 2 or 3"},
      {R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "auto"}}})",
       "zero_optimization.offload_optimizer.device auto: none or cpu is required"},
      {R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "auto"}}})",
       "zero_optimization.offload_param.device auto: none or cpu is required"}};
  for (const auto& [text, message] : cases) {
    try {
      import_text(text, "ds.json", given);
      ADD_FAILURE() << text << " is read";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

TEST(AccelerateDeepSpeed, KeysOfDeepSpeedMayBeLeftOut) {
  ImportGiven given = beside_job();
  given.devices = 8;
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    given.job->optimizer.kind = kind;
    for (const char* types :
         {"", R"("bf16": {"enabled": true}, )", R"("fp16": {"enabled": true}, )"}) {
      for (const char* stage : {"0", "1", "2", "3"}) {
        const std::string text =
            std::string("{") + types + R"("zero_optimization": {"stage": )" + stage + "}}";
        const Imported imported = import_text(text, "ds.json", given);
        EXPECT_TRUE(bool(legal(*imported.job, *imported.strategy, 8))) << text;
        EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, *imported.strategy))) << text;
      }
    }
  }
}

TEST(AccelerateDeepSpeed, OtherKindsAreNamed) {
  EXPECT_EQ(config_refusal("distributed_type: MULTI_XPU\nnum_processes: 8\n"),
            "config.yaml: at line 1: distributed_type MULTI_XPU: FSDP, DEEPSPEED or MULTI_GPU is "
            "required, or NO for one device");
}

TEST(AccelerateDeepSpeed, UlyssesSharesSequences) {
  const Imported imported = import_text(
      with(kInline, "use_cpu: false",
           "use_cpu: false\nparallelism_config:\n  parallelism_config_sp_size: 2\n"
           "  parallelism_config_sp_backend: deepspeed\n  parallelism_config_dp_shard_size: 4"),
      "config.yaml", beside_job());
  EXPECT_EQ(imported.strategy->cp, 2);
  EXPECT_EQ(field_text(*imported.strategy, "context_exchange"), "all_to_all");
  EXPECT_EQ(imported.strategy->sharding_degree, 4);
}

TEST(Accelerate, ParametersMayBeOnTheHost) {
  const std::string text =
      "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
      "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_offload_params: true\n";
  const Strategy strategy = *import_text(text, "config.yaml", beside_job()).strategy;
  EXPECT_TRUE(strategy.gathers.offload);
  EXPECT_EQ(strategy.optimizer.offload_percent, 100);
  const Strategy alone =
      *import_text(with(text, "num_processes: 8", "num_processes: 1"), "config.yaml", beside_job())
           .strategy;
  EXPECT_TRUE(alone.gathers.offload);
  EXPECT_EQ(alone.sharding_stage, 3);
  const std::string usual = with(text, "offload_params: true", "offload_params: false");
  EXPECT_FALSE(import_text(usual, "config.yaml", beside_job()).strategy->gathers.offload);
}

TEST(DeepSpeed, LimitsMayLackTheirStage) {
  ImportGiven given = beside_job();
  given.devices = 8;
  const std::string text = R"({"zero_optimization": {"stage": 3, "max_live_parameters": 1000000,
  "max_reuse_distance": 0}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1})";
  const auto limits = [&](const std::string& config) {
    return import_text(config, "ds.json", given).strategy.value().gathers;
  };
  EXPECT_EQ(limits(text).max_live_bytes, Bytes(2'000'000));
  EXPECT_EQ(limits(text).reuse_distance_bytes, Bytes(0));
  // A strategy with 0 has no limit; DeepSpeed keeps what is in use alone.
  EXPECT_EQ(limits(with(text, "1000000", "0")).max_live_bytes, Bytes(2));
}

TEST(Accelerate, WithoutFsdpEachRankHasAllParameters) {
  const auto read = [](const std::string& text) {
    return import_text(text, "config.yaml", beside_job());
  };
  const Imported all =
      read("distributed_type: \"MULTI_GPU\"\nmixed_precision: bf16\nnum_processes: 2\n");
  EXPECT_EQ(all.devices, 2);
  EXPECT_EQ(all.strategy->sharding_stage, 0);
  EXPECT_EQ(all.strategy->dp, 2);
  EXPECT_EQ(field_text(*all.strategy, "grad_bucket_bytes"), "25MiB");
  const Imported one = read("distributed_type: \"NO\"\nmixed_precision: bf16\nnum_processes: 8\n");
  EXPECT_EQ(one.devices, 1);
}

}  // namespace
}  // namespace plimsoll
