// Gathers of parameters overlap with computation alike, whichever ranks share the parameters.
#include <gtest/gtest.h>

#include <string>

#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

/// Llama 3 8B with sequences of 2,048 tokens, one micro-batch on the eight devices of a node.
Breakdown breakdown_of(const Framework& framework, const std::string& ranks) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/llama3-8b.json");
  job.sequence = 2048;
  job.global_batch = 32;
  const CostModel costs(preset_cluster("rtx-4090"), std::nullopt, framework);
  const Strategy strategy =
      parse_strategy("sharding_stage=3,recompute=full,offload_optimizer_percent=100," + ranks);
  return evaluate(Target(job, costs, 8), strategy).prediction.breakdown;
}

double exposed(const Framework& framework, const std::string& ranks) {
  return breakdown_of(framework, ranks).exposed_communication.value();
}

/// Both gather the same bytes beside the same products. Heads that are exchanged for tokens come
/// on top with context parallelism.
const std::string kSharding = "sharding_degree=8,micro_batch=4,",
                  kContext = "cp=8,context_exchange=all_to_all,micro_batch=32,";

TEST(ParameterGathers, OverlapAlikeOverShardingAndContextRanks) {
  const Framework framework = framework_by_name("deepspeed");
  const auto hidden = [&](const std::string& ranks) {
    return exposed(framework, ranks + "prefetch_depth=0") -
           exposed(framework, ranks + "prefetch_depth=2");
  };
  EXPECT_NEAR(hidden(kSharding) / hidden(kContext), 1, 0.1);
  EXPECT_LT(exposed(framework, kSharding + "prefetch_depth=2"),
            exposed(framework, kContext + "prefetch_depth=2"));
}

TEST(ParameterGathers, AreHiddenWhereTheyAreFetchedAhead) {
  const Framework framework = framework_by_name("deepspeed");
  EXPECT_LT(2 * exposed(framework, kSharding + "prefetch_depth=1"),
            exposed(framework, kSharding + "prefetch_depth=0"));
}

TEST(ParameterGathers, HostsThatWaitWaitForAnyRanks) {
  Framework waits = framework_by_name("deepspeed");
  waits.host.waits.for_gathers = true;
  for (const std::string& ranks : {kSharding, kContext}) {
    EXPECT_GT(exposed(waits, ranks + "prefetch_depth=2"),
              1.5 * exposed(framework_by_name("deepspeed"), ranks + "prefetch_depth=2"))
        << ranks;
  }
}

}  // namespace
}  // namespace plimsoll
