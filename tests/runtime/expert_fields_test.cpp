// Fields of a mixture of experts beside its sizes: jobs with each train the model of one rank under
// every way of sharing it out, or say what they drop.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "models/job/layer_forms.h"
#include "passes/pipeline.h"
#include "plan/measured.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

Job mixture() {
  Job job = nano_job();
  job.name = "mixture";
  job.family = Family::llama;
  job.layers = 2;
  job.dropout = 0;
  job.experts = Experts{.count = 8, .chosen = 2, .ffn_hidden = 24};
  return job;
}

/// Dense ranks, ranks of experts, both dispatches, sequences in parts, stages and shards.
const std::vector<std::string> kWays = {
    "dp=2",
    "mp=2",
    "mp=2,sequence_parallel=true",
    "cp=2,mp=2,sequence_parallel=true,context_exchange=all_gather",
    "dp=2,ep=2,expert_rows_percent=200",
    "mp=2,dp=2,ep=2,etp=2,sequence_parallel=true,expert_rows_percent=200",
    "dp=4,ep=2,expert_dispatch=all_gather",
    "cp=2,dp=2,ep=4,expert_rows_percent=400",
    "pp=2,dp=2,ep=2,recompute=full,expert_rows_percent=200,overlap_expert_exchange=true",
    "sharding_degree=4,sharding_stage=3,ep=2,expert_rows_percent=200"};

void expect_every_way_alike(const Job& job, std::int64_t micro_batches = 2) {
  for (const std::string& way : kWays) {
    SCOPED_TRACE(way);
    expect_model_of_one_rank(job, way, micro_batches);
  }
}

TEST(ExpertFields, SomeSequencesHaveOneAuxiliaryLoss) {
  Job job = mixture();
  job.global_batch = 16;
  job.experts->balance_loss = 0.5;  // then its gradients are not lost among the others
  job.experts->balance_sequences = 2;
  expect_every_way_alike(job);
}

/// Gradients of the first router.
std::vector<float> router_gradients(const Job& job) {
  const auto programs = nano_programs(nano_strategy("mp=1", 1, {}), job);
  TrainOptions options;
  options.steps = 1;
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  const TrainResult result = train_nano(programs, options, job);
  return put_together(programs, result.gradients, true, 0).at({"expert_layer.router.weight", 0});
}

TEST(ExpertFields, TheLossOfTwoSequencesIsNotThatOfEach) {
  Job job = mixture();
  const std::vector<float> without = router_gradients(job);
  job.experts->balance_loss = 0.5;
  const std::vector<float> of_each = router_gradients(job);
  job.experts->balance_sequences = 2;
  const std::vector<float> of_two = router_gradients(job);
  EXPECT_GT(relative_distance(of_each, without), 1e-3);
  EXPECT_GT(relative_distance(of_two, of_each), 1e-3);
  EXPECT_LT(relative_distance(of_two, of_each), relative_distance(of_each, without));
}

TEST(ExpertFields, MicroBatchesHaveAllSequencesOfALoss) {
  Job job = mixture();
  job.experts->balance_loss = 0.01;
  job.experts->balance_sequences = 2;
  Strategy strategy;
  for (const std::int64_t sequences : {1, 2, 3, 4}) {
    strategy.micro_batch = sequences;
    job.global_batch = 4 * sequences * 2;
    EXPECT_EQ(bool(legal(job, strategy, 1)), sequences % 2 == 0) << sequences;
  }
  strategy.micro_batch = 3;
  EXPECT_TRUE(states(legal(job, strategy, 1).reason(), {"micro_batch 3", "2 sequences"}));
}

TEST(ExpertFields, AnMlpBesideExpertsReadsWhatIsBehindAttention) {
  Job job = mixture();
  job.experts->dense_ffn_hidden = 20;
  job.experts->shared_ffn_hidden = 16;
  for (const MlpInput input : {MlpInput::attended, MlpInput::own_norm}) {
    job.mlp_input = input;
    expect_every_way_alike(job);
  }
}

TEST(ExpertFields, ExpertsWorkInANarrowerSpace) {
  Job job = mixture();
  job.experts->latent_hidden = 12;
  job.experts->shared_ffn_hidden = 16;
  expect_every_way_alike(job);
  job.experts->bias = true;
  for (const char* way : {"mp=2", "dp=2,ep=2,expert_rows_percent=200,overlap_shared_experts=true"})
    expect_model_of_one_rank(job, way);
}

TEST(ExpertFields, ExpertsHaveAdapters) {
  using enum AdapterTarget;
  Job job = mixture();
  job.experts->shared_ffn_hidden = 16;
  for (const SetOf<AdapterTarget> targets :
       {SetOf<AdapterTarget>{gate, up, down}, SetOf<AdapterTarget>{gate_up, down, query},
        SetOf<AdapterTarget>{down}}) {
    job.adapters = Adapters{.rank = 3, .targets = targets};
    expect_model_of_one_rank(job, "dp=2,sharding_degree=2,sharding_stage=3");
    for (const std::string& way : kWays) {
      SCOPED_TRACE(way);
      const bool refused = way.find("etp=2") != way.npos || way.find("stage=3") != way.npos;
      if (!refused) expect_model_of_one_rank(job, way);
    }
    EXPECT_TRUE(states(
        legal(job, nano_strategy("mp=2,dp=2,ep=2,etp=2,sequence_parallel=true", 1, {}), 4).reason(),
        {"etp", "adapters of experts"}));
  }
}

struct Dropping {
  std::vector<double> losses;
  std::vector<MeasuredExperts> experts;
};

Dropping dropping_run(const Job& job, const std::string& strategy) {
  TrainOptions options;
  options.steps = 3;
  options.warm_up_steps = 0;
  const auto programs = nano_programs(nano_strategy(strategy, 1, {}), job);
  const Measured measured = train_nano(programs, options, job).measured;
  return {measured.losses, measured.experts};
}

TEST(ExpertFields, RowsWithoutMemoryAreDroppedWhereTheJobSaysSo) {
  Job job = mixture();
  const std::string ranks = "dp=4,ep=4,expert_rows_percent=";
  std::string fault;
  try {
    dropping_run(job, ranks + "100");
  } catch (const std::exception& error) {
    fault = error.what();
  }
  EXPECT_NE(fault.find("there is memory for"), std::string::npos) << fault;
  const Dropping all = dropping_run(job, ranks + "400");
  job.experts->drop_overflow = true;
  // Memory for all rows: nothing is dropped.
  const Dropping none = dropping_run(job, ranks + "400");
  EXPECT_EQ(none.losses, all.losses);
  const Dropping some = dropping_run(job, ranks + "100");
  ASSERT_EQ(some.experts.size(), 2u);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(none.experts[layer].dropped, 0);
    EXPECT_GT(some.experts[layer].dropped, 0);
    EXPECT_GT(some.experts[layer].load, 1);
  }
  EXPECT_NE(some.losses, all.losses);
  for (std::size_t step = 0; step < some.losses.size(); ++step)
    EXPECT_NEAR(some.losses[step], all.losses[step], 0.05 * all.losses[step]);
}

// Both dispatches sort rows by expert, then by rank and token, so they drop the same ones.
TEST(ExpertFields, BothDispatchesDropTheSameRows) {
  Job job = mixture();
  job.experts->drop_overflow = true;
  const std::string ranks = "dp=4,ep=4,expert_rows_percent=100";
  const Dropping sent = dropping_run(job, ranks),
                 gathered = dropping_run(job, ranks + ",expert_dispatch=all_gather"),
                 again = dropping_run(job, ranks + ",recompute=full");
  EXPECT_EQ(sent.experts, gathered.experts);
  EXPECT_EQ(sent.experts, again.experts);
  for (std::size_t step = 0; step < sent.losses.size(); ++step) {
    EXPECT_NEAR(sent.losses[step], gathered.losses[step], 1e-5 * sent.losses[step]);
    EXPECT_NEAR(sent.losses[step], again.losses[step], 1e-5 * sent.losses[step]);
  }
}

// The ranks of etp get the same rows together, and each counts those that came to it.
TEST(ExpertFields, DroppedRowsAreCountedOnceWhereRanksShareExperts) {
  Job job = mixture();
  job.experts->drop_overflow = true;
  const Dropping whole = dropping_run(job,
                                      "dp=2,ep=2,expert_rows_percent=100,"
                                      "expert_dispatch=all_gather"),
                 shared = dropping_run(job,
                                       "dp=4,ep=2,etp=2,expert_rows_percent=100,"
                                       "expert_dispatch=all_gather");
  ASSERT_EQ(whole.experts.size(), shared.experts.size());
  for (std::size_t layer = 0; layer < whole.experts.size(); ++layer)
    EXPECT_EQ(whole.experts[layer].dropped, shared.experts[layer].dropped);
  const Dropping sent = dropping_run(job, "dp=4,ep=2,etp=2,expert_rows_percent=100");
  EXPECT_GT(sent.experts[0].dropped, 0);
}

}  // namespace
}  // namespace plimsoll
