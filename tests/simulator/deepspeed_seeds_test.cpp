// DeepSpeed pull request 1188 on eight A100s: forward and backward before it, with it, and with the
// flat gather that it tried, from one set of constants
// (models/presets/frameworks/deepspeed-zero3-2021.json) and the preset of the cluster.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/cluster/cluster.h"
#include "passes/pipeline.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

const std::string kPresets = PLIMSOLL_SOURCE_DIR "/models/presets";

/// bing_bert with layer norms first has the sizes of this one. Tokens are not printed: 768 on a GPU
/// take the 60 ms that forward takes without ZeRO-3 (issue 1174).
Job bing_bert() {
  Job job = read_job(kPresets + "/jobs/bert-large.json");
  job.layers = 64;
  job.hidden = 2560;
  job.heads = job.kv_heads = 40;
  job.ffn_hidden = 10240;
  job.vocab = 32003;
  job.sequence = 128;
  job.global_batch = 48;
  job.precision = DType::f16;
  job.loss_scale = LossScale{};
  check_job(job, "job");
  return job;
}

struct Phases {
  double forward_ms = 0, backward_ms = 0;
};

double span_ms(const Timeline& timeline, Phase phase) {
  Picoseconds begin{std::int64_t{1} << 62}, end;
  for (const Interval& interval : timeline.intervals) {
    if (interval.rank != timeline.intervals[0].rank || interval.phase != phase) continue;
    begin = std::min(begin, interval.begin);
    end = std::max(end, interval.end);
  }
  return (end - begin).seconds().value() * 1e3;
}

Phases phases(const std::string& framework_name, const std::string& gather) {
  const Job job = bing_bert();
  const Framework framework = framework_by_name(framework_name);
  const Strategy strategy = parse_strategy(
      "sharding_degree=8,sharding_stage=3,micro_batch=6,prefetch_depth=0,gather=" + gather);
  const Verdict verdict = legal(job, strategy, 8);
  EXPECT_TRUE(verdict) << verdict.reason();
  Cluster cluster = read_cluster(kPresets + "/clusters/dgx-a100-40gb.json");
  cluster.nodes = 1;
  const auto programs = lower({job, strategy, framework}, {}, Proof::none);
  std::int64_t tensors = 0;
  for (const Segment& segment : programs[0].segments)
    tensors += segment.parameter.rfind("layer.", 0) == 0;
  EXPECT_EQ(tensors, 64 * 16);
  const CostModel costs(cluster, std::nullopt, framework);
  const Simulation simulation = simulate(programs, costs);
  return {span_ms(simulation.timeline, Phase::forward),
          span_ms(simulation.timeline, Phase::backward)};
}

void expect_within_a_tenth(const Phases& found, const Phases& published) {
  EXPECT_NEAR(found.forward_ms / published.forward_ms, 1, 0.1) << found.forward_ms << " ms";
  EXPECT_NEAR(found.backward_ms / published.backward_ms, 1, 0.1) << found.backward_ms << " ms";
}

TEST(DeepSpeedSeeds, Pr1188BeforeIt) {
  expect_within_a_tenth(phases("deepspeed-zero3-2021", "tensor"), {470, 900});
}
TEST(DeepSpeedSeeds, Pr1188WithIt) {
  expect_within_a_tenth(phases("deepspeed-zero3-1188", "module"), {270, 670});
}
TEST(DeepSpeedSeeds, Pr1188WithFlatGathers) {
  expect_within_a_tenth(phases("deepspeed-zero3-1188-flat", "module"), {200, 610});
}

}  // namespace
}  // namespace plimsoll
