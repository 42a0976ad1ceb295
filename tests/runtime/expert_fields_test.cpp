// Fields of a mixture of experts beside its sizes: jobs with each train the model of one rank under
// every way of sharing it out.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "models/job/layer_forms.h"
#include "passes/pipeline.h"
#include "plan/measured.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"

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
  EXPECT_EQ(legal(job, strategy, 1).reason(),
            "micro_batch 3 is no multiple of the 2 sequences of an auxiliary loss");
}

}  // namespace
}  // namespace plimsoll
