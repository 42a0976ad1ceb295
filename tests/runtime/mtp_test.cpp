// MTP modules are trained: the gradient is that of the loss, and every strategy trains the model of
// one rank in the bytes that were predicted.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "passes/pipeline.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"

namespace plimsoll {
namespace {

Job mtp_job(std::int64_t depths, bool tied) {
  Job job = read_job(tests_folder() / "llama-nano.json");
  job.layers = 4;
  job.dropout = 0;
  job.tied_embeddings = tied;
  job.mtp = MultiToken{depths, 0.5};
  return job;
}

Job with_experts(Job job) {
  Experts experts;
  experts.count = 4;
  experts.chosen = 2;
  experts.ffn_hidden = 24;
  experts.dense_layers = 1;
  experts.selection_bias = 0.05;
  job.experts = experts;
  return job;
}

TrainResult train_steps(const std::vector<Program>& programs, const Job& job,
                        std::size_t steps = 3) {
  TrainOptions options;
  options.steps = std::int64_t(steps);
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  return train_nano(programs, options, job);
}

std::vector<double> losses_of_one_rank(const Job& job) {
  return train_steps(nano_programs(nano_strategy("", 1, {}), job), job).measured.losses;
}

// A module of weight 0 changes nothing; of another weight it adds its cross entropy.
TEST(Mtp, CountsItsLossByItsWeight) {
  Job job = mtp_job(1, false);
  job.mtp->loss_weight = 0;
  Job without = job;
  without.mtp.reset();
  const std::vector<double> none = losses_of_one_rank(job), plain = losses_of_one_rank(without);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(none[i], plain[i], 1e-5) << i;
  job.mtp->loss_weight = 0.5;
  const double added = losses_of_one_rank(job)[0] - plain[0];
  const double counted = 1 - 1.0 / double(job.sequence);  // the last token has no target
  EXPECT_NEAR(added, 0.5 * counted * std::log(double(job.vocab)), 0.05);  // untrained
}

// Layers that alternate are numbered through, and so are modules. The table that a module shares
// is the embedding's all the same.
TEST(Mtp, SharesTheTableBehindLayersThatAlternate) {
  Job job = mtp_job(1, true);
  job.window = 5;
  job.window_pattern = {true, false};
  const std::vector<double> one = losses_of_one_rank(job);
  const auto two = train_steps(nano_programs(nano_strategy("pp=2", 2, {}), job), job);
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(two.measured.losses[i], one[i], 1e-5 * one[i]) << i;
}

// A step of gradient descent against the gradient g lowers the loss of the same sequences by
// rate |g|^2, but for what is of the second order, which two rates cancel.
TEST(Mtp, HasTheGradientOfItsLoss) {
  for (const bool tied : {false, true}) {
    Job job = with_experts(mtp_job(2, tied));
    job.experts->chosen = job.experts->count;  // choices would make the loss jump
    job.experts->selection_bias = 0;
    job.clip_norm = 0;
    job.optimizer = Optimizer{.kind = OptimizerKind::sgd, .weight_decay = 0, .momentum = 0};
    // Each step reads the same sequences: they are as long as the text.
    const std::int64_t batch = job.global_batch * job.sequence;
    std::vector<std::byte> text;
    for (std::int64_t i = 0; i < batch + job.sequence + 1; ++i)
      text.push_back(std::byte((i * 37 + i / 11) % 251));
    const auto fall = [&](double rate) {
      job.optimizer.learning_rate = rate;
      TrainOptions options;
      options.steps = 2;
      options.warm_up_steps = 0;
      const auto programs = nano_programs(nano_strategy("", 1, {}), job);
      const Measured measured = train(programs, job, bundled_framework(), text, options).measured;
      const double norm = measured.gradient_norms[0];
      return (measured.losses[0] - measured.losses[1]) / rate / (norm * norm);
    };
    EXPECT_NEAR(2 * fall(0.01) - fall(0.02), 1, 0.01) << tied;
  }
}

struct MtpSplit {
  const char* fields;
  std::int64_t micro_batches = 2;
  Recompute recompute = Recompute::none;
  bool experts = false;
};

class MtpSplits : public testing::TestWithParam<std::tuple<bool, MtpSplit>> {};

TEST_P(MtpSplits, TrainTheModelOfOneRank) {
  const auto& [tied, split] = GetParam();
  const bool apart = std::string(split.fields).ends_with("+0");  // modules and head
  if (tied && apart) GTEST_SKIP() << "both would read the table";
  const Job plain = mtp_job(2, tied), job = split.experts ? with_experts(plain) : plain;
  expect_model_of_one_rank(job, split.fields, split.micro_batches, split.recompute);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, MtpSplits,
    testing::Combine(
        testing::Bool(),
        testing::Values(MtpSplit{"mp=2"}, MtpSplit{"mp=2,sequence_parallel=true"},
                        MtpSplit{"pp=2", 4}, MtpSplit{"pp=2,layer_split=4+2", 4, Recompute::full},
                        MtpSplit{"pp=2,schedule=zb_h1", 4},
                        MtpSplit{"pp=2,virtual_stages=2,schedule=zb_v", 4},
                        MtpSplit{"pp=2,virtual_stages=2", 4}, MtpSplit{"cp=2"},
                        MtpSplit{"pp=4,layer_split=1+3+2+0", 4},
                        MtpSplit{"pp=3,sharding_degree=2,sharding_stage=2,layer_split=2+4+0", 2},
                        MtpSplit{"pp=2,virtual_stages=2,schedule=zb_v,layer_split=2+2+2+0", 4},
                        MtpSplit{"dp=2,sharding_degree=2,sharding_stage=1"},
                        MtpSplit{"pp=2,sharding_degree=2,sharding_stage=2", 2},
                        MtpSplit{"sharding_degree=2,sharding_stage=3", 2, Recompute::full},
                        MtpSplit{"mp=2,cp=2,sharding_degree=2,sharding_stage=3,"
                                 "sequence_parallel=true"},
                        MtpSplit{"mp=2,sequence_parallel=true,grad_reduction=per_micro_batch"},
                        MtpSplit{"dp=2,pp=2,ep=2,expert_rows_percent=200", 2, {}, true})),
    [](const auto& info) { return "Case" + std::to_string(info.index); });

}  // namespace
}  // namespace plimsoll
