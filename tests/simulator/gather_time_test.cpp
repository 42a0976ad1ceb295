// Times of DeepSpeed pull request 1188 from one set of parameters: hidden 2560, 64 layers, 8 GPUs,
// 235 GB/s per device, 0.40 ms for each gather that the host launches and waits for, 60 ms of
// computation in forward.
#include <gtest/gtest.h>

#include <algorithm>

#include "passes/pipeline.h"
#include "simulator/simulate.h"
#include "tests/simulator/run_engine.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kLayers = 64, kHidden = 2560, kRanks = 8;
constexpr double kCompute = 60e-3, kCall = 0.40e-3, kRate = 235e9;

Job published_job() {
  Job job;
  job.name = "bing_bert";
  job.layers = kLayers;
  job.hidden = kHidden;
  job.heads = job.kv_heads = 40;
  job.ffn_hidden = 4 * kHidden;
  job.vocab = 32003;
  job.sequence = 512;
  job.global_batch = kRanks;
  job.precision = DType::bf16;
  check_job(job, "job");
  return job;
}

/// Devices on which the matmuls of a layer's forward take 1/64 of the 60 ms and nothing else takes
/// time.
Cluster published_cluster(const Program& program) {
  double flops_of_layer = 0;
  for (const Routine& routine : program.routines) {
    if (routine.name != "layer.forward") continue;
    for (const Op& op : routine.ops) flops_of_layer += flops(op, routine.tensors).value();
  }
  Cluster cluster;
  cluster.name = "p4d.24xlarge";
  cluster.devices_per_node = kRanks;
  cluster.device.name = "A100";
  cluster.device.memory = Bytes(std::int64_t{1} << 40);
  cluster.device.memory_bandwidth = BytesPerSecond(1e18);
  cluster.device.peak_bf16 = FlopsPerSecond(flops_of_layer * double(kLayers) / kCompute);
  cluster.device.peak_fp32 = cluster.device.peak_fp16 = cluster.device.peak_bf16;
  cluster.source = "seeds of this test";
  return cluster;
}

std::vector<Program> lowered(const std::string& gather) {
  const Job job = published_job();
  const Strategy strategy =
      parse_strategy("sharding_degree=8,sharding_stage=3,micro_batch=1," + gather);
  const Framework framework = bundled_framework();
  return lower({job, strategy, framework}, {}, Proof::structure);
}

struct Forward {
  double seconds = 0;  ///< from the begin of the first layer's gathers to its end
  std::int64_t gathers = 0;
};

Forward forward_of_layers(const std::vector<Program>& programs, const Level& level) {
  Cluster cluster = published_cluster(programs[0]);
  cluster.levels = {level};
  Framework framework = bundled_framework();
  framework.host.dispatch.op = Seconds(1e-12);
  const CostModel costs(cluster, std::nullopt, framework);
  const Simulation simulation = simulate(programs, costs);
  std::vector<Interval> gathers;
  Picoseconds first_layer{std::int64_t{1} << 60}, end;
  for (const Interval& interval : simulation.timeline.intervals) {
    if (interval.routine == "layer.forward") {
      first_layer = std::min(first_layer, interval.begin);
      end = std::max(end, interval.end);
    }
    const bool forward = interval.routine.find("forward") != std::string::npos;
    if (interval.kind == OpKind::all_gather && forward) gathers.push_back(interval);
  }
  // Gathers of the embedding come first, and gathers of the head last.
  std::sort(gathers.begin(), gathers.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Forward result;
  Picoseconds begin = end;
  for (const Interval& gather : gathers) {
    if (gather.end > end) continue;  // the head's
    ++result.gathers;
  }
  const std::size_t of_embedding = std::size_t(std::count_if(
      programs[0].buckets.begin(), programs[0].buckets.end(), [&](const Bucket& bucket) {
        const std::int64_t at = bucket.begin;
        for (const Segment& segment : programs[0].segments) {
          if (segment.offset == at) return segment.parameter.rfind("embedding", 0) == 0;
        }
        return false;
      }));
  begin = gathers.at(of_embedding).begin;
  result.gathers -= std::int64_t(of_embedding);
  result.seconds = (end - begin).seconds().value();
  return result;
}

TEST(GatherTime, ElementsOfALayerAndOfThePartOfOneRank) {
  const std::vector<Program> programs = lowered("gather=layer");
  const auto layers =
      std::count_if(programs[0].buckets.begin(), programs[0].buckets.end(),
                    [](const Bucket& bucket) { return bucket.elements / kRanks == 9'834'560; });
  EXPECT_EQ(layers, kLayers);
  // bing_bert: these layers, a norm after the last, embeddings of 32,003 tokens, 512 positions and
  // 2 sentence types with a norm, a pooler, and heads for masked tokens and next sentences whose
  // decoder shares the token table.
  const std::int64_t h = kHidden, v = 32003;
  const std::int64_t embeddings = (v + 512 + 2) * h + 2 * h, pooler = h * h + h;
  const std::int64_t heads = (h * h + h + 2 * h + v) + (2 * h + 2);
  EXPECT_EQ(kLayers * kRanks * 9'834'560 + embeddings + 2 * h + pooler + heads - 5'131'703'045, 0);
}

// One collective per layer, gathered while the layer before it computes: all but the first are
// hidden. 157.35 MB, of which 7/8 arrive at 235 GB/s: 0.586 ms. Lowered Programs.
TEST(GatherTime, OneGatherPerLayerIsHidden) {
  const Level level{"NVSwitch", 0, BytesPerSecond(kRate), Seconds(0)};
  const Forward found = forward_of_layers(lowered("gather=layer,prefetch_depth=1"), level);
  const double gather = 2.0 * 78'676'480 * 7 / 8 / kRate;
  EXPECT_NEAR(gather, 0.586e-3, 1e-6);
  EXPECT_NEAR(found.seconds, kCompute + gather, 1e-6);
  EXPECT_NEAR(found.seconds, 60.6e-3, 0.1e-3);
}

// Each call takes 0.40 ms before anything else goes on. A layer has 12 tensors in 6 modules here,
// since query, key and value are one weight.
TEST(GatherTime, CallsThatAreWaitedForAddUp) {
  const Level level{"launch and wait", 0, BytesPerSecond(1e18), Seconds(kCall / (kRanks - 1))};
  for (const auto& [gather, calls] : {std::pair{"tensor", 12}, std::pair{"module", 6}}) {
    const Forward found =
        forward_of_layers(lowered(std::string("prefetch_depth=0,gather=") + gather), level);
    EXPECT_EQ(found.gathers, calls * kLayers) << gather;
    EXPECT_NEAR(found.seconds, kCompute + kCall * double(calls * kLayers), 0.1e-3) << gather;
  }
}

// As published, with three weights for query, key and value: 16 tensors in 8 modules. Hand-built:
// the host launches each gather, waits, and computes.
TEST(GatherTime, SixteenTensorsInEightModules) {
  const auto forward = [](std::int64_t calls) {
    const auto ps = [](double seconds) { return Picoseconds(std::int64_t(seconds * 1e12 + 0.5)); };
    std::vector<TimedOp> timed_ops;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (std::int64_t call = 0; call < calls; ++call) {
        timed_ops.push_back({1, ps(kCall), ps(1e-12), std::nullopt, {}});
        timed_ops.push_back({0,
                             ps(1e-12),
                             ps(kCompute / double(kLayers * calls)),
                             std::nullopt,
                             {std::uint32_t(timed_ops.size() - 1)}});
      }
    }
    const std::vector<std::vector<TimedOp>> ranks = {timed_ops};
    return run_engine(ranks, Execution::threads).rank_end[0].seconds().value();
  };
  EXPECT_NEAR(forward(16), 470e-3, 1e-3);
  EXPECT_NEAR(forward(8), 265e-3, 1e-3);
}

}  // namespace
}  // namespace plimsoll
