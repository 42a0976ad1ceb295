// Jobs that freeze parameters: what is trained, what a step multiplies, and what is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "models/job/job.h"

namespace plimsoll {
namespace {

using enum AdapterTarget;

Job model_of(const char* name) {
  return read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "models/presets/jobs" /
                  (std::string(name) + ".json"));
}

Job adapted(const char* name, SetOf<AdapterTarget> targets, std::int64_t rank = 16) {
  Job job = model_of(name);
  job.adapters = Adapters{.rank = rank, .targets = targets};
  check_job(job, "job");
  return job;
}

std::int64_t trained_of(const Job& job) { return trained_parameter_count(build_forward(job, 1)); }

std::string refusal_of(const Job& job) {
  try {
    check_job(job, "job");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// "trainable params" that PEFT prints for Llama-3 8B with r = 16: by hand r (rows + columns) of
// each layer.
TEST(Adapters, AreCountedAsPublished) {
  EXPECT_EQ(trained_of(adapted("llama3-8b", {query, key, value, out, gate, up, down})), 41'943'040);
  EXPECT_EQ(trained_of(adapted("llama3-8b", {query, value})), 6'815'744);
  // With one A for query, key and value (Megatron Bridge): r (h + (a + 2 kv) d).
  EXPECT_EQ(trained_of(adapted("llama3-8b", {qkv})), 32 * 16 * (4096 + 6144));
  EXPECT_EQ(trained_of(adapted("llama3-8b", {gate_up})), 32 * 16 * (4096 + 2 * 14336));
  EXPECT_EQ(trained_of(adapted("gpt2-xl", {qkv, down})), 48 * 16 * (1600 + 3 * 1600 + 6400 + 1600));
}

TEST(Adapters, LeaveTheOtherParametersAsTheyWere) {
  const Job job = adapted("llama3-8b", {query, key, value, out, gate, up, down});
  const std::int64_t all = parameter_count(build_forward(job, 1));
  EXPECT_EQ(all - trained_of(job), parameter_count(build_forward(model_of("llama3-8b"), 1)));
  Job packed = job;
  packed.frozen_weights = FrozenWeights::nf4_nested;
  EXPECT_EQ(parameter_count(build_forward(packed, 1)), all);
}

TEST(Adapters, TrainOtherParametersAsWell) {
  Job job = adapted("llama3-8b", {query, value});
  const std::int64_t before = trained_of(job);
  job.adapters->trained = {"embedding", "head"};
  check_job(job, "job");
  EXPECT_EQ(trained_of(job) - before, 2 * 128'256 * 4'096 + 4'096);  // and the norm of the head
}

TEST(Frozen, TablesAreNotTrained) {
  Job job = model_of("llama3-8b");
  const std::int64_t all = trained_of(job);
  job.frozen = {"embedding"};
  check_job(job, "job");
  EXPECT_EQ(all - trained_of(job), 128'256 * 4'096);
}

// A product has two gradients, and one where its weight is frozen.
TEST(Frozen, WeightsHaveNoGradientToMultiply) {
  const Job full = model_of("llama3-8b");
  EXPECT_EQ(training_matmul_flops_per_sequence(full).value(),
            3 * forward_matmul_flops_per_sequence(full).value());
  const std::int64_t rank = 8;
  const Job job = adapted("llama3-8b", {out}, rank);
  const double s = double(job.sequence), layers = double(job.layers), h = 4096, kv = 1024,
               f = 14336, v = 128256;
  const double frozen = 2 * s * (layers * (2 * h * h + 2 * h * kv + 3 * h * f) + h * v);
  const double adapter = 2 * s * layers * 2 * double(rank) * h;
  const double scores = 4 * s * s * h * layers;
  EXPECT_DOUBLE_EQ(training_matmul_flops_per_sequence(job).value(),
                   2 * frozen + 3 * adapter + 3 * scores);
}

TEST(Adapters, AreOfLayersThatAJobHas) {
  const auto with = [](const char* name, SetOf<AdapterTarget> targets) {
    Job job = model_of(name);
    job.adapters = Adapters{.targets = targets};
    return refusal_of(job);
  };
  EXPECT_EQ(with("llama3-8b", {query, out}), "");
  EXPECT_NE(with("llama3-8b", {}), "");
  EXPECT_NE(with("llama3-8b", {query, qkv}), "");
  EXPECT_NE(with("llama3-8b", {gate, gate_up}), "");
  EXPECT_NE(with("gpt2-xl", {gate}), "");
  EXPECT_EQ(with("mixtral-8x7b", {down}), "");
  EXPECT_NE(with("mixtral-8x7b", {gate, down}), "");
  EXPECT_NE(with("mixtral-8x7b", {up, down}), "");
  EXPECT_EQ(with("mixtral-8x7b", {query, value}), "");
  EXPECT_EQ(with("deepseek-v3", {out}), "");
  EXPECT_EQ(with("deepseek-v3", {query_down, query_up, kv_down, kv_up, out}), "");
  for (const AdapterTarget target : {query, key, value, qkv})
    EXPECT_NE(with("deepseek-v3", {target}), "");
  EXPECT_EQ(with("deepseek-v2-lite", {query, kv_down, kv_up}), "");  // its queries have no latent
  EXPECT_NE(with("deepseek-v2-lite", {query_down}), "");
  EXPECT_NE(with("deepseek-v2-lite", {query_up}), "");
  for (const AdapterTarget target : {query_down, query_up, kv_down, kv_up})
    EXPECT_NE(with("llama3-8b", {target}), "");
}

// Gate, up and down of each of 8 experts in 32 layers have two matrices of rank 16.
TEST(Adapters, AreOfEachExpert) {
  const std::int64_t h = 4096, f = 14336;
  EXPECT_EQ(trained_of(adapted("mixtral-8x7b", {gate, up, down}, 16)), 32 * 8 * 3 * 16 * (h + f));
  EXPECT_EQ(trained_of(adapted("mixtral-8x7b", {gate_up, down}, 16)),
            32 * 8 * 16 * (h + 2 * f + f + h));
  Job dropped = adapted("mixtral-8x7b", {gate, up}, 16);
  dropped.adapters->dropout = 0.05;
  EXPECT_NE(refusal_of(dropped), "");
}

// A shared MLP has the adapters of MLPs, too: of 1408 x 2 columns in 26 of 27 layers, the first
// of which has an MLP of 10944.
TEST(Adapters, AreOfSharedExperts) {
  const Job job = adapted("deepseek-v2-lite", {down}, 8);
  EXPECT_EQ(trained_of(job),
            8 * ((10'944 + 2'048) + 26 * (2 * 1'408 + 2'048) + 26 * 64 * (1'408 + 2'048)));
}

// By hand r (rows + columns) of each product of attention in 61 layers of DeepSeek-V3 and in that
// of its MTP module: 7168 to 1536 and on to 128 heads of 192, 7168 to 512 + 64, 512 to 128 heads of
// 256, and 128 heads of 128 to 7168. Keys' shared columns and their latent have one A.
TEST(Adapters, AreOfLatentAttention) {
  const std::int64_t r = 16;
  EXPECT_EQ(trained_of(adapted("deepseek-v3", {query_down}, r)), 62 * r * (7168 + 1536));
  EXPECT_EQ(trained_of(adapted("deepseek-v3", {query_up}, r)), 62 * r * (1536 + 128 * 192));
  EXPECT_EQ(trained_of(adapted("deepseek-v3", {kv_down}, r)), 62 * r * (7168 + 512 + 64));
  EXPECT_EQ(trained_of(adapted("deepseek-v3", {kv_up}, r)), 62 * r * (512 + 128 * 256));
  EXPECT_EQ(trained_of(adapted("deepseek-v3", {out}, r)), 62 * r * (128 * 128 + 7168));
  EXPECT_EQ(trained_of(adapted("deepseek-v2-lite", {query}, r)), 27 * r * (2048 + 16 * 192));
  Job job = adapted("deepseek-v3", {query_down, query_up, kv_down, kv_up, out}, r);
  EXPECT_EQ(parse_job(job_text(job), "job"), job);
}

TEST(Frozen, SomeLayerIsTrained) {
  Job job = model_of("llama3-8b");
  job.frozen = {"layer"};
  EXPECT_NE(refusal_of(job), "");
  job.frozen = {"no_such_layer"};
  EXPECT_NE(refusal_of(job), "");
  Job packed = model_of("llama3-8b");
  packed.frozen_weights = FrozenWeights::nf4;
  EXPECT_NE(refusal_of(packed), "");
}

TEST(Adapters, HaveNoTrainedWeightsInFourBitsAndNoLayerWithoutOne) {
  Job job = adapted("llama3-8b", {query, value});
  job.adapters->trained = {"layer.down.weight"};
  EXPECT_EQ(refusal_of(job), "");
  job.frozen_weights = FrozenWeights::nf4;
  EXPECT_NE(refusal_of(job), "");
  Job some = model_of("deepseek-v2-lite");
  some.adapters = Adapters{.targets = {down}};
  EXPECT_EQ(refusal_of(some), "");
  Job dropped = adapted("llama3-8b", {query});
  dropped.adapters->dropout = 1;
  EXPECT_NE(refusal_of(dropped), "");
}

TEST(Adapters, AreReadAsTheyAreWritten) {
  Job job = adapted("llama3-8b", {query, gate}, 4);
  job.adapters->dropout = 0.05;
  job.adapters->trained = {"norm"};
  job.frozen_weights = FrozenWeights::nf4;
  EXPECT_EQ(parse_job(job_text(job), "job"), job);
}

}  // namespace
}  // namespace plimsoll
