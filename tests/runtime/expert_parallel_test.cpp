// A mixture of experts under every way of sharing it out trains the model of one rank, in the bytes
// that were predicted.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "models/cluster/cluster.h"
#include "passes/pipeline.h"
#include "plan/measured.h"
#include "simulator/simulate.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"

namespace plimsoll {
namespace {

Job expert_job(double capacity = 0) {
  Job job = nano_job();
  job.name = "expert-nano";
  job.family = Family::llama;
  job.layers = 3;
  job.dropout = 0;
  Experts experts;
  experts.count = 8;
  experts.chosen = 2;
  experts.ffn_hidden = 24;
  experts.shared_ffn_hidden = 16;
  experts.dense_layers = 1;
  experts.capacity = capacity;
  experts.balance_loss = 0.01;
  experts.z_loss = 0.001;
  experts.selection_bias = 0.05;  // enough to change choices of the next step
  job.experts = experts;
  return job;
}

struct Shared {
  std::string strategy;
  double capacity = 0;
};

class SharedExperts : public testing::TestWithParam<Shared> {};

TEST_P(SharedExperts, TrainTheModelOfOneRank) {
  expect_model_of_one_rank(expert_job(GetParam().capacity), GetParam().strategy);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, SharedExperts,
    testing::Values(
        Shared{"dp=2"}, Shared{"mp=2"}, Shared{"mp=2,sequence_parallel=true"},
        Shared{"sharding_degree=2,sharding_stage=3"},
        Shared{"dp=2,ep=2,expert_dispatch=all_gather"}, Shared{"dp=2,ep=2,expert_rows_percent=200"},
        Shared{"dp=4,ep=4,expert_rows_percent=400"}, Shared{"dp=4,ep=2,expert_rows_percent=200"},
        Shared{"dp=4,ep=2,pp=2,expert_rows_percent=200"},
        Shared{"mp=2,dp=2,ep=4,sequence_parallel=true,expert_rows_percent=400"},
        Shared{"mp=2,dp=2,ep=2,sequence_parallel=true,expert_rows_percent=200"},
        Shared{"mp=2,dp=2,etp=1,sequence_parallel=true"}, Shared{"mp=1,dp=2,etp=2"},
        Shared{"dp=2,ep=2,expert_rows_percent=200", 0.75},
        Shared{"dp=2,ep=2,expert_dispatch=all_gather", 0.75},
        Shared{"mp=2,dp=2,ep=4,sequence_parallel=true,expert_rows_percent=400", 0.75},
        Shared{"dp=2,mp=2", 0.75},
        Shared{"sharding_degree=2,sharding_stage=1,ep=2,expert_rows_percent=200"},
        Shared{"sharding_degree=4,sharding_stage=1,ep=2,expert_rows_percent=200"},
        Shared{"mp=2,sharding_degree=4,sharding_stage=1,ep=4,sequence_parallel=true,"
               "expert_rows_percent=400"},
        Shared{"mp=2,sharding_degree=2,sharding_stage=1,etp=1,sequence_parallel=true"},
        Shared{"pp=2,sharding_degree=2,sharding_stage=1,ep=2,expert_rows_percent=200"},
        Shared{"cp=2", 0.75}, Shared{"cp=2,mp=2,context_exchange=all_gather", 0.75},
        Shared{"cp=2,mp=2,sequence_parallel=true,context_exchange=all_to_all", 0.75},
        Shared{"cp=2,ep=2,expert_rows_percent=200", 0.75},
        Shared{"cp=2,dp=2,ep=4,expert_rows_percent=400"},
        Shared{"cp=2,dp=2,ep=2,expert_dispatch=all_gather", 0.75},
        Shared{"mp=2,cp=2,ep=2,sequence_parallel=true,expert_dispatch=all_gather", 0.75},
        Shared{"mp=2,cp=2,ep=4,sequence_parallel=true,expert_rows_percent=400", 0.75},
        Shared{"cp=2,sharding_degree=2,sharding_stage=2,ep=2,expert_rows_percent=200"},
        Shared{"dp=2,sharding_degree=2,sharding_stage=1,ep=2,expert_rows_percent=200"},
        Shared{"dp=2,sharding_degree=2,sharding_stage=3,ep=4,expert_rows_percent=400"},
        Shared{"sharding_degree=2,sharding_stage=2,ep=2,expert_rows_percent=200"},
        Shared{"sharding_degree=4,sharding_stage=2,ep=2,expert_rows_percent=200"},
        Shared{"sharding_degree=2,sharding_stage=3,ep=2,expert_rows_percent=200"},
        Shared{"sharding_degree=4,sharding_stage=3,ep=2,expert_rows_percent=200"},
        Shared{"sharding_degree=4,sharding_stage=3,ep=4,gather=tensor,"
               "expert_rows_percent=400"},
        Shared{"sharding_degree=4,sharding_stage=3,ep=2,persistence_threshold=200,"
               "expert_rows_percent=200"},
        Shared{"dp=4,ep=2,etp=2,expert_rows_percent=200"},
        Shared{"dp=4,ep=2,etp=2,expert_dispatch=all_gather"},
        Shared{"mp=2,dp=2,ep=2,etp=2,sequence_parallel=true,expert_rows_percent=200", 0.75},
        Shared{"sharding_degree=8,sharding_stage=3,ep=2,etp=2,expert_rows_percent=200"},
        Shared{"dp=2,ep=2,expert_rows_percent=200,overlap_shared_experts=true"},
        Shared{"mp=2,dp=2,ep=2,etp=2,sequence_parallel=true,expert_rows_percent=200,"
               "overlap_shared_experts=true"},
        Shared{"dp=2,ep=2,expert_dispatch=all_gather,overlap_shared_experts=true"},
        Shared{"dp=2,ep=2,expert_rows_percent=200,overlap_expert_exchange=true"},
        Shared{"dp=2,ep=2,expert_dispatch=all_gather,overlap_expert_exchange=true"},
        Shared{"dp=2,ep=2,recompute=full,expert_rows_percent=200,overlap_expert_exchange=true"},
        Shared{"pp=2,dp=2,ep=2,expert_rows_percent=200,overlap_expert_exchange=true"},
        Shared{
            "pp=2,dp=2,ep=2,virtual_stages=2,loss_as_layers=1,schedule=dualpipe_v,expert_rows_percent=200,"
            "overlap_expert_exchange=true"},
        Shared{"pp=2,dp=2,ep=2,loss_as_layers=1,schedule=dualpipe,expert_rows_percent=200,"
               "overlap_expert_exchange=true"},
        Shared{"pp=3,dp=2,ep=2,virtual_stages=2,layer_split=1+0+1+0+1+0,schedule=dualpipe_v,"
               "expert_rows_percent=200,overlap_expert_exchange=true"},
        Shared{"pp=2,virtual_stages=2,loss_as_layers=1,sharding_degree=2,sharding_stage=1,ep=2,"
               "expert_rows_percent=200,overlap_expert_exchange=true,overlap_shared_experts=true"},
        Shared{"mp=2,dp=2,ep=2,etp=2,sequence_parallel=true,expert_rows_percent=200,"
               "overlap_expert_exchange=true"}),
    [](const auto& info) { return "Case" + std::to_string(info.index); });

std::vector<MeasuredExperts> measured_experts_of(const Job& job, const std::string& strategy,
                                                 std::int64_t micro_batches) {
  TrainOptions options;
  options.steps = 2;
  options.warm_up_steps = 0;
  const auto programs = nano_programs(nano_strategy(strategy, micro_batches, {}), job);
  Measured measured = train_nano(programs, options, job).measured;
  const Measured read = parse_measured(measured_text(measured), "measured");
  EXPECT_EQ(read.experts, measured.experts);
  return measured.experts;
}

TEST(SharedExperts, CountDroppedChoicesAlikeOnAllRanks) {
  const Job job = expert_job(0.75);
  const auto one = measured_experts_of(job, "mp=1", 1);
  ASSERT_EQ(one.size(), 2u);  // the first of three layers is dense
  for (const char* strategy :
       {"dp=2,ep=2,expert_rows_percent=200", "cp=2,mp=2,sequence_parallel=true",
        "cp=2,dp=2,ep=4,expert_rows_percent=400", "pp=2,dp=2"}) {
    SCOPED_TRACE(strategy);
    const auto found = measured_experts_of(job, strategy, 2);
    ASSERT_EQ(found.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(found[i].layer, std::int64_t(i) + 1);
      EXPECT_EQ(found[i].choices, job.global_batch * job.sequence * 2);
      EXPECT_GT(one[i].dropped, 0);
      EXPECT_EQ(found[i].dropped, one[i].dropped);
    }
  }
}

TEST(SharedExperts, MeasureTheLoadOfTheFullestRank) {
  const Job job = expert_job();
  for (const MeasuredExperts& one :
       measured_experts_of(job, "dp=4,ep=4,expert_rows_percent=400", 2)) {
    EXPECT_GT(one.load, 1);
    EXPECT_LT(one.load, 4);
    EXPECT_GE(one.highest_load, one.load);
    EXPECT_EQ(one.dropped, 0);
  }
  // One of two ranks with everything is the most that can be.
  for (const MeasuredExperts& one : measured_experts_of(job, "dp=2", 2)) EXPECT_EQ(one.load, 0);
}

TEST(SharedExperts, AreComputedWhileRowsTravel) {
  Job job = expert_job();
  job.hidden = 1024;
  job.heads = job.kv_heads = 8;
  job.ffn_hidden = 4096;
  job.sequence = 1024;
  job.experts->ffn_hidden = 2048;
  job.experts->shared_ffn_hidden = 2048;
  job.precision = DType::bf16;
  const Cluster cluster = read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                                       "/models/presets/clusters/dgx-a100-80gb.json");
  const auto step_time = [&](const std::string& more) {
    Strategy strategy = parse_strategy("dp=8,ep=8" + more);
    const CostModel costs(cluster, std::nullopt, bundled_framework());
    return simulate(lower({job, strategy, bundled_framework()}), costs, Folding::folded).step_time;
  };
  EXPECT_LT(step_time(",overlap_shared_experts=true"), step_time(""));
}

TEST(SharedExperts, EndWithTheLayerWhereRowsExceedTheirMemory) {
  Job job = expert_job();
  job.experts->balance_loss = 0;
  const auto programs =
      nano_programs(nano_strategy("dp=8,ep=8,expert_rows_percent=100", 1, {}), job);
  TrainOptions options;
  options.steps = 1;
  options.warm_up_steps = 0;
  try {
    train_nano(programs, options, job);
    FAIL() << "routing was even";
  } catch (const std::exception& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("raise expert_rows_percent, or give the job a capacity"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("of layer"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace plimsoll
