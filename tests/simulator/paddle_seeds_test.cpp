// Lowered Programs give the numbers that Paddle's pull requests print, with one set of constants
// for all (presets paddle-2.1 and paddle-2.2), on the preset of a DGX-1 with V100s.
//
// Constants: 18 us for an op, 3 ops for a kernel. Some facts are assumed, since they are not
// printed: sequences of 512, 2 of them in a micro-batch and 256 in a batch (34965 prints the latter
// two), whole layers recomputed, norms and embeddings in f32 (Paddle's lists of mixed precision).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/cluster/cluster.h"
#include "passes/pipeline.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

const std::string kPresets = PLIMSOLL_SOURCE_DIR "/models/presets";
const std::string kTensorByTensor = ",micro_batch=2,flatten=none,gradient_merge=tensor";
const std::string kRecomputed = ",recompute=full" + kTensorByTensor;

Job mixed(Job job) {
  job.precision = DType::f16;
  job.loss_scale = LossScale{};
  job.fp32_parameters = {"norm", "embedding"};
  check_job(job, "job");
  return job;
}

/// 39 layers, of which 36 shared, 3,072 wide; branch 256 wide (35878).
Job ernie() { return mixed(read_job(kPresets + "/jobs/ernie3-4b.json")); }

/// 768 wide with 12 heads; the same branch of 3 layers (34965).
Job ernie_base(std::int64_t trunk = 12) {
  Job job = read_job(kPresets + "/jobs/ernie3-4b.json");
  job.layers = trunk;
  job.hidden = 768;
  job.heads = job.kv_heads = 12;
  job.ffn_hidden = 3072;
  return mixed(job);
}

Cluster dgx1() {
  Cluster cluster = read_cluster(kPresets + "/clusters/dgx1-v100-32gb.json");
  cluster.nodes = 1;
  return cluster;
}

double tokens_per_second(const Job& job, const Cluster& cluster, const Framework& framework,
                         const std::string& strategy_text, std::int64_t devices = 8) {
  const Strategy strategy = parse_strategy(strategy_text);
  const Verdict verdict = legal(job, strategy, devices);
  EXPECT_TRUE(verdict) << verdict.reason();
  const auto programs = lower({job, strategy, framework}, {}, Proof::none);
  const CostModel costs(cluster, std::nullopt, framework);
  const Seconds step = simulate(programs, costs, Folding::folded, Detail::none).step_time;
  return double(job.global_batch * job.sequence) / step.value();
}

double percent_gained(const Job& job, const std::string& before, const std::string& after) {
  const Cluster cluster = dgx1();
  const double slow = tokens_per_second(job, cluster, framework_by_name("paddle-2.1"), before);
  return (tokens_per_second(job, cluster, framework_by_name("paddle-2.2"), after) / slow - 1) * 100;
}

const std::string kEightStages = "pp=8" + kRecomputed;
const std::string kTwoByTwoByTwo = "mp=2,pp=2,dp=2" + kRecomputed;
const std::string kOwners =
    "mp=2,pp=2,sharding_degree=2,sharding_owner=prefix,collective_fusion=coalesced" + kRecomputed;
const std::string kEveryUse = ",cast_placement=every_use", kOnce = ",cast_placement=after_update";

// 35,849 -> 37,747 tokens/s.
TEST(PaddleSeeds, Pr34965OnEightStages) {
  const double gained =
      percent_gained(ernie_base(), kEightStages + kEveryUse, kEightStages + kOnce);
  EXPECT_NEAR(gained, 5.29, 2);
}

// 41,450 -> 44,543 tokens/s. The one row whose step time a constant was fitted to.
TEST(PaddleSeeds, Pr34965OnTwoByTwoByTwo) {
  const double gained =
      percent_gained(ernie_base(), kTwoByTwoByTwo + kEveryUse, kTwoByTwoByTwo + kOnce);
  EXPECT_NEAR(gained, 7.46, 2);
  const double before = tokens_per_second(ernie_base(), dgx1(), framework_by_name("paddle-2.1"),
                                          kTwoByTwoByTwo + kEveryUse);
  EXPECT_NEAR(before / 41450, 1, 0.06);
}

// 6,421 -> 6,868 tokens/s, parameters owned by two ranks.
TEST(PaddleSeeds, Pr35878) {
  EXPECT_NEAR(percent_gained(ernie(), kOwners + kEveryUse, kOwners + kOnce), 6.96, 2);
}

const std::string kFused =
    "mp=2,pp=2,dp=2,recompute=full,micro_batch=2,flatten=none,gradient_merge=fused,"
    "grad_bucket_bytes=32MiB";

/// Its fp16_allreduce keeps the merged gradients in fp16.
const std::string kHalf = ",gradient_type=computed";

/// Pairs and rows of pull requests in the order that they print, slowest first.
void expect_published_orders(const Framework& framework) {
  const Cluster cluster = dgx1();
  const auto rate = [&](const Job& job, const std::string& strategy) {
    return tokens_per_second(job, cluster, framework, strategy);
  };
  const Job base = ernie_base(), large = ernie();
  // 35004: 34,285; 35,228 with fp16 all-reduces; 36,144 with fused merges; 35,596 with both; 39,145
  // with casts moved, too. One pair is not predicted in this order: with both there are fewer ops
  // than with fused merges, not more (docs/results/kernels.md).
  const double plain = rate(base, kTwoByTwoByTwo + kEveryUse);
  const double half = rate(base, kTwoByTwoByTwo + kEveryUse + kHalf);
  const double fused = rate(base, kFused + kEveryUse);
  const double both = rate(base, kFused + kEveryUse + kHalf);
  const double moved = rate(base, kFused + kOnce + kHalf);
  EXPECT_LT(plain, half);
  EXPECT_LT(half, fused);
  EXPECT_LT(half, both);
  EXPECT_LT(fused, moved);
  EXPECT_LT(both, moved);
  // 34965 and 35878.
  EXPECT_LT(plain, rate(base, kTwoByTwoByTwo + kOnce));
  EXPECT_LT(rate(base, kEightStages + kEveryUse), rate(base, kEightStages + kOnce));
  EXPECT_LT(rate(large, kOwners + kEveryUse), rate(large, kOwners + kOnce));
  // 34480: 135,503 -> 138,892 with 15 all-reduces instead of 57.
  Job gpt = mixed(read_job(kPresets + "/jobs/gpt2-medium.json"));
  gpt.global_batch = 256;
  gpt.fp32_parameters.clear();
  const std::string owners =
      "dp=4,sharding_degree=2,sharding_owner=prefix,micro_batch=4,"
      "flatten=none,grad_bucket_bytes=32MiB,collective_fusion=";
  EXPECT_LT(rate(gpt, owners + "none"), rate(gpt, owners + "coalesced"));
}

TEST(PaddleSeeds, SiblingsKeepTheirOrder) {
  expect_published_orders(framework_by_name("paddle-2.2"));
}

// With the host of an NPU, too: 102 us for an op.
TEST(PaddleSeeds, SiblingsKeepTheirOrderWithTheConstantsOfPr33461) {
  expect_published_orders(framework_by_name("paddle-2.1-npu"));
}

/// Ascend 910 by its datasheet (Liao et al. 2021, HPCA: 256 TFLOP/s fp16, 32 GiB at 1.2 TB/s). The
/// step is bound by dispatch, so that these rates hardly matter.
Cluster ascend() {
  Cluster cluster;
  cluster.name = "ascend-910";
  cluster.nodes = 1;
  cluster.devices_per_node = 8;
  cluster.device.name = "Ascend 910";
  cluster.device.kind = DeviceKind::gpu;
  cluster.device.memory = Bytes(std::int64_t{32} << 30);
  cluster.device.memory_bandwidth = BytesPerSecond(1.2e12);
  cluster.device.peak_fp16 = FlopsPerSecond(256e12);
  cluster.device.peak_fp32 = FlopsPerSecond(32e12);
  cluster.levels = {{"HCCS", 0, BytesPerSecond(30e9), Seconds(10e-6)}};
  return cluster;
}

// 20,684 -> 23,583 tokens/s, 20,480 tokens per step: printed as 13.8 %, 14.0 % by arithmetic.
// Constants: 102 us for an op; the 3 ops for a kernel of the rows above. Assumed, since it is not
// printed: one NPU, 19 layers 768 wide (more than 300 tensors), sequences of 512, in two
// micro-batches, whose gradients add up without ops of their own.
TEST(PaddleSeeds, Pr33461) {
  Job job = ernie_base(16);
  job.global_batch = 40;
  const Framework framework = framework_by_name("paddle-2.1-npu");
  const std::string strategy = "micro_batch=20,cast_placement=every_use,flatten=";
  const double before = tokens_per_second(job, ascend(), framework, strategy + "none", 1);
  const double after = tokens_per_second(job, ascend(), framework, strategy + "coalesced", 1);
  const double gained = (after / before - 1) * 100;
  EXPECT_GT(gained, 13.8);
  EXPECT_LT(gained, 14.02);
  EXPECT_NEAR(before / 20684, 1, 0.03);
  EXPECT_NEAR(after / 23583, 1, 0.03);
}

}  // namespace
}  // namespace plimsoll
