// A loss in chunks trains the model of one rank, in the predicted bytes.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "tests/runtime/one_rank.h"

namespace plimsoll {
namespace {

class ChunkLossSplits : public testing::TestWithParam<const char*> {};

TEST_P(ChunkLossSplits, TrainTheModelOfOneRank) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/llama-nano.json");
  for (const bool tied : {false, true}) {
    job.tied_embeddings = tied;
    SCOPED_TRACE(tied ? "tied" : "not tied");
    expect_model_of_one_rank(job, std::string(GetParam()) + ",loss_chunks=4", 4);
  }
}

// GPipe's backwards run from the last micro-batch to the first.
INSTANTIATE_TEST_SUITE_P(
    Splits, ChunkLossSplits,
    testing::Values("mp=2", "mp=2,sequence_parallel=true", "cp=2", "pp=2,dp=2",
                    "schedule=gpipe,pp=2,dp=2",
                    "schedule=gpipe,pp=2,sharding_degree=2,sharding_stage=1",
                    "schedule=gpipe,pp=2,sharding_degree=2,sharding_stage=2",
                    "pp=2,layer_split=4+0", "pp=2,virtual_stages=2",
                    "sharding_degree=2,sharding_stage=3",
                    "sharding_degree=2,sharding_stage=3,prefetch_depth=2,keep_gathered=true",
                    "dp=2,gradient_merge=tensor"),
    [](const auto& info) { return "split" + std::to_string(info.index); });

}  // namespace
}  // namespace plimsoll
