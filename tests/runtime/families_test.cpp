// Training every family of models, with dropout and without, under splits of every kind: bytes as
// predicted, and the model that one rank trains.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "passes/pipeline.h"
#include "runtime/backend.h"
#include "runtime/command/train.h"
#include "tests/runtime/hand_built.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"

namespace plimsoll {
namespace {

constexpr std::size_t kSteps = 4;

Job family_job(const std::string& name, double dropout) {
  Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests" / (name + ".json"));
  job.dropout = dropout;
  return job;
}

TrainResult train_job(const std::vector<Program>& programs, const Job& job) {
  TrainOptions options;
  options.steps = kSteps;
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  return train_nano(programs, options, job);
}

void expect_same_training(const std::vector<Program>& serial, const TrainResult& expected,
                          const std::vector<Program>& programs, const TrainResult& found) {
  for (std::size_t step = 0; step < kSteps; ++step) {
    const double loss = expected.measured.losses[step];
    const double norm = expected.measured.gradient_norms[step];
    EXPECT_GT(loss, 0);
    EXPECT_GT(norm, 0);
    EXPECT_NEAR(found.measured.losses[step], loss, 1e-4 * loss) << step;
    EXPECT_NEAR(found.measured.gradient_norms[step], norm, 1e-4 * norm) << step;
  }
  const WholeTensors one = put_together(serial, expected.gradients, true, 0);
  const WholeTensors many = put_together(programs, found.gradients, true, 1e-4);
  EXPECT_EQ(one.size(), many.size());
  for (const auto& [name, gradient] : one) {
    ASSERT_TRUE(many.contains(name)) << name.first << " of layer " << name.second;
    EXPECT_LE(relative_distance(many.at(name), gradient), 1e-4)
        << name.first << " of layer " << name.second;
  }
}

struct FamilySplit {
  const char* fields;
  std::int64_t micro_batches;
  Recompute recompute = Recompute::none;
};

#ifdef PLIMSOLL_SANITIZED
const std::vector<FamilySplit> kSplits = {{"mp=2,pp=2", 2, Recompute::selective}};
#else
const std::vector<FamilySplit> kSplits = {
    {"", 4},
    {"", 2, Recompute::full},
    {"mp=2", 1, Recompute::selective},
    {"pp=2", 4},
    {"pp=3,layer_split=1+2+1", 2, Recompute::full},
    {"dp=2", 2},
    {"sharding_degree=2,sharding_stage=1", 4, Recompute::selective},
    {"mp=2,pp=2,dp=2", 2, Recompute::full},
    {"mp=2,pp=2,sequence_parallel=true", 2, Recompute::selective},
};
#endif

class Families : public testing::TestWithParam<std::tuple<std::string, double>> {};
INSTANTIATE_TEST_SUITE_P(Nano, Families,
                         testing::Combine(testing::Values("gpt-nano", "llama-nano", "bert-nano",
                                                          "ernie-nano"),
                                          testing::Values(0.0, 0.1)),
                         [](const auto& info) {
                           const std::string family = std::get<0>(info.param);
                           return family.substr(0, family.find('-')) +
                                  (std::get<1>(info.param) > 0 ? "_dropout" : "");
                         });

TEST_P(Families, TrainTheSerialModelInThePredictedBytes) {
  const auto& [name, dropout] = GetParam();
  const Job job = family_job(name, dropout);
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
  const TrainResult expected = train_job(serial, job);
  for (const FamilySplit& split : kSplits) {
    Strategy strategy = nano_strategy(split.fields, split.micro_batches, split.recompute);
    if (!strategy.pipeline.layer_split.empty()) {  // the rest of the layers on the last stage
      strategy.pipeline.layer_split.back() += total_layers(job) - 4;
    }
    SCOPED_TRACE(strategy_summary(strategy));
    const auto programs = nano_programs(strategy, job);
    const TrainResult found = train_job(programs, job);
    expect_predicted_bytes(programs, found.measured);
    expect_same_training(serial, expected, programs, found);
  }
}

TEST_P(Families, Learn) {
  const auto& [name, dropout] = GetParam();
  const Job job = family_job(name, dropout);
  TrainOptions options;
  options.steps = 25;
  options.warm_up_steps = 0;
  const auto programs = nano_programs(nano_strategy("", 1, Recompute::none), job);
  const std::vector<double> losses = train_nano(programs, options, job).measured.losses;
  EXPECT_NEAR(losses.front(), std::log(double(job.vocab)), 0.5);
  EXPECT_LT(losses.back(), losses.front() - 0.5);
}

// On a text of one letter, with weights that stay, nothing but dropout differs between steps.
TEST(DropoutSteps, DrawsAgainInEveryStep) {
  const std::vector<std::byte> text(4096, std::byte{'a'});
  const auto losses = [&](double rate) {
    Job job = family_job("gpt-nano", rate);
    job.optimizer.learning_rate = 0;
    TrainOptions options;
    options.steps = kSteps;
    options.warm_up_steps = 0;
    const auto programs = nano_programs(nano_strategy("", 1, Recompute::none), job);
    return train(programs, job, bundled_framework(), text, options).measured.losses;
  };
  const std::vector<double> without = losses(0), with = losses(0.5);
  for (std::size_t step = 1; step < kSteps; ++step) {
    EXPECT_EQ(without[step], without[0]);
    EXPECT_NE(with[step], with[step - 1]);
  }
  EXPECT_NE(with[0], without[0]);
}

// Ernie's stages may end in the trunk, at the join and in the branch.
TEST(Ernie, EveryBorderBetweenTwoStagesTrainsTheSameModel) {
  const Job job = family_job("ernie-nano", 0.1);
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
  const TrainResult expected = train_job(serial, job);
  for (std::int64_t first = 1; first < total_layers(job); ++first) {
    Strategy strategy = nano_strategy("pp=2", 4, Recompute::none);
    strategy.pipeline.layer_split = {first, total_layers(job) - first};
    SCOPED_TRACE(strategy_summary(strategy));
    const auto programs = nano_programs(strategy, job);
    const TrainResult found = train_job(programs, job);
    expect_predicted_bytes(programs, found.measured);
    expect_same_training(serial, expected, programs, found);
  }
}

// With four heads and two ranks, there are keys and values of two heads, one for each rank, or of
// one head, which both ranks have.
TEST(Gpt, FewerKeysAndValuesTrainTheSameModel) {
  Job job = family_job("gpt-nano", 0.1);
  for (const std::int64_t kv_heads : {2, 1}) {
    job.kv_heads = kv_heads;
    const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
    const auto programs = nano_programs(nano_strategy("mp=2,pp=2", 2, Recompute::none), job);
    const TrainResult found = train_job(programs, job);
    expect_predicted_bytes(programs, found.measured);
    expect_same_training(serial, train_job(serial, job), programs, found);
  }
}

TEST(Llama, OtherHeadsAndBiasesTrainTheSameModel) {
  Job job = family_job("llama-nano", 0);
  job.qkv_bias = true;
  for (const std::int64_t kv_heads : {4, 2}) {
    job.kv_heads = kv_heads;
    const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
    const auto programs = nano_programs(nano_strategy("mp=2,pp=2", 2, Recompute::none), job);
    expect_same_training(serial, train_job(serial, job), programs, train_job(programs, job));
  }
}

// Keys and values of one head are on both ranks, whose parts of the norms' gradients add up.
TEST(Llama, DescendantsTrainTheSameModel) {
  Job qwen = family_job("llama-nano", 0);
  qwen.qk_norm = true;
  qwen.head_size = 24;
  qwen.kv_heads = 1;
  Job neox = family_job("llama-nano", 0);
  neox.norm = NormKind::layer_norm;
  neox.activation = Activation::gelu;
  neox.activation_params.exact = true;
  neox.qkv_bias = neox.out_bias = neox.mlp_bias = true;
  neox.rotary.fraction = 0.25;
  neox.mlp_input = MlpInput::own_norm;
  Job falcon = neox;
  falcon.mlp_input = MlpInput::shared_norm;
  Job gemma = family_job("llama-nano", 0);
  gemma.activation = Activation::geglu;
  gemma.norm_place = NormPlace::around;
  gemma.qk_norm = true;
  gemma.window = 5;
  Job deepseek = family_job("llama-nano", 0.1);
  deepseek.kv_heads = deepseek.heads;
  deepseek.latent = Latent{12, 10, 6, 4, 8};
  deepseek.rotary.growth = {0.5, 4};
  Job lite = deepseek;  // queries without a latent
  lite.latent->q_rank = 0;
  Job gemma2 = gemma;  // windows in some layers, with other angles
  gemma2.window_pattern = {true, true, false};
  gemma2.rotary.window_base = 100;
  gemma2.dropout = 0.1;
  gemma2.window_chunks = true;
  gemma2.score_cap = 0.5;
  gemma2.logit_cap = 2;
  gemma2.head_bias = true;
  gemma2.factors = {.embedding = 6, .branch = 0.7, .scores = 0.8, .logits = 0.5};
  Job oss = family_job("llama-nano", 0);
  oss.kv_heads = 1;
  oss.sinks = true;
  oss.norm_epsilon = 1e-3;
  oss.activation_params = {.limit = 0.05, .sharpness = 1.702, .offset = 1};
  oss.rotary.scale = {RotaryScaling::yarn, 8, 16, 1, 4, false, 1.2};
  Job next = qwen;  // gates of attention, and layers that turn nothing
  next.attention_gate = true;
  next.rotary.pattern = {true, false};
  next.rotary.scale = {RotaryScaling::llama3, 8, 16, 1, 4};
  next.rotary.growth = {0.5, 3, 1};
  Job code = family_job("llama-nano", 0.1);
  code.learned_positions = true;
  code.activation = Activation::geglu;
  code.activation_params.exact = true;
  code.factors.embedding = 2;
  for (const Job& job : {qwen, neox, falcon, gemma, gemma2, deepseek, lite, oss, next, code}) {
    SCOPED_TRACE(job_text(job));
    const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
    const TrainResult expected = train_job(serial, job);
    for (const char* text : {"mp=2,pp=2", "mp=2,sequence_parallel=true,sharding_degree=2"}) {
      const auto programs = nano_programs(nano_strategy(text, 2, Recompute::full), job);
      const TrainResult found = train_job(programs, job);
      expect_predicted_bytes(programs, found.measured);
      expect_same_training(serial, expected, programs, found);
    }
  }
}

// Positions are those in whole sequences.
TEST(Llama, QueriesGrowAlikeOnRanksThatShareSequences) {
  Job job = family_job("llama-nano", 0);
  job.rotary.growth = {0.5, 3, 1};
  Job some = job;  // in layers that turn nothing
  some.kv_heads = some.heads;
  some.rotary.pattern = {true, false};
  for (const Job& grown : {job, some}) {
    for (const char* exchange : {"ring", "all_gather", "all_to_all"})
      expect_model_of_one_rank(grown, std::string("cp=2,context_exchange=") + exchange);
    expect_model_of_one_rank(grown, "pp=2", 2, Recompute::full);
  }
}

TEST(Llama, QueriesThatGrowHaveOtherLosses) {
  Job job = family_job("llama-nano", 0);
  const auto losses = [&] {
    return train_job(nano_programs(nano_strategy("", 1, {}), job), job).measured.losses;
  };
  const std::vector<double> without = losses();
  job.rotary.growth = {0.5, 3, 1};
  EXPECT_NE(losses(), without);
}

// Every product of latent attention has an adapter: the first of queries and of keys and values is
// whole on each rank, and the second is split by heads.
TEST(Llama, AdaptersOfLatentAttentionTrainTheSameModel) {
  using enum AdapterTarget;
  Job job = family_job("llama-nano", 0);
  job.kv_heads = job.heads;
  Job experts = job;
  experts.experts = Experts{.count = 4, .chosen = 2, .ffn_hidden = 24, .shared_ffn_hidden = 16};
  for (Job one : {job, experts}) {
    for (const std::int64_t q_rank : {12, 0}) {
      one.latent = Latent{q_rank, 10, 6, 4, 8};
      one.adapters = Adapters{.rank = 3, .targets = {kv_down, kv_up, out}};
      for (const AdapterTarget target : {query_down, query_up, query})
        if ((target == query) == (q_rank == 0)) one.adapters->targets.add(target);
      check_job(one, "job");
      for (const char* way :
           {"mp=2", "mp=2,sequence_parallel=true,dp=2", "pp=2,mp=2", "cp=2,dp=2",
            "cp=2,mp=2,context_exchange=all_to_all", "sharding_degree=2,sharding_stage=3"}) {
        SCOPED_TRACE(fmt::format("{} {}", way, job_text(one)));
        for (const Recompute form : {Recompute::none, Recompute::full})
          expect_model_of_one_rank(one, way, 2, form);
      }
      const std::string modules = "recompute_modules=latent_up_projection+core_attention";
      expect_model_of_one_rank(one, "mp=2," + modules, 2, Recompute::modules);
      if (one.experts) expect_model_of_one_rank(one, "dp=2,ep=2,expert_rows_percent=200");
    }
  }
}

// All heads are normed at once, so no rank has some of them.
TEST(Llama, NormsOfWholeQueriesTrainTheSameModel) {
  Job olmo = family_job("llama-nano", 0);
  olmo.qk_norm = olmo.qk_norm_across_heads = true;
  olmo.norm_place = NormPlace::after;
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), olmo);
  const TrainResult expected = train_job(serial, olmo);
  for (const char* text : {"pp=2,dp=2", "sharding_degree=2,sharding_stage=3"}) {
    const auto programs = nano_programs(nano_strategy(text, 2, Recompute::full), olmo);
    const TrainResult found = train_job(programs, olmo);
    expect_predicted_bytes(programs, found.measured);
    expect_same_training(serial, expected, programs, found);
  }
}

}  // namespace
}  // namespace plimsoll
