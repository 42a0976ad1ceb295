// Sharding stages 2 and 3 as they run: bytes that persist, and collectives and bytes sent, equal to
// the closed forms of ZeRO (Rajbhandari et al. 2019, arXiv 1910.02054, section 7) and of DeepSpeed
// pull request 1188.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "passes/pipeline.h"
#include "runtime/executor.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"

namespace plimsoll {
namespace {

// ---- what persists ----

Bytes persistent(const Program& program, TensorRole role) {
  Bytes total;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent && buffer.role == role) total += buffer.bytes;
  }
  return total;
}

Bytes persistent_model_bytes(const Program& program) {
  return persistent(program, TensorRole::parameter) +
         persistent(program, TensorRole::master_parameter) +
         persistent(program, TensorRole::gradient) +
         persistent(program, TensorRole::optimizer_state);
}

// Adam with f32 parameters: 4 parameter + 4 gradient + 8 moments per element.
TEST(ShardingStages, PersistentBytesPerElement) {
  for (const std::int64_t d : {2, 4, 8}) {
    for (const std::int64_t stage : {1, 2, 3}) {
      const Strategy strategy = nano_strategy(
          "sharding_degree=" + std::to_string(d) + ",sharding_stage=" + std::to_string(stage), 1,
          Recompute::none);
      const Program program = nano_programs(strategy)[0];
      const std::int64_t n = bucket_elements(program);
      const std::int64_t expected = stage == 1   ? 8 * n + 8 * n / d
                                    : stage == 2 ? 4 * n + 12 * n / d
                                                 : 16 * n / d;
      EXPECT_EQ(persistent_model_bytes(program).count(), expected)
          << "stage " << stage << ", degree " << d;
    }
  }
}

// bf16 parameters and f32 masters: 2 + 4 + 8 + 4 bytes, of which stage 1 shards masters and
// moments, stage 2 gradients too, stage 3 everything.
TEST(ShardingStages, PersistentBytesInMixedPrecision) {
  Job job = nano_job();
  job.precision = DType::bf16;
  const std::int64_t d = 4;
  for (const std::int64_t stage : {1, 2, 3}) {
    const Strategy strategy =
        nano_strategy("sharding_degree=4,sharding_stage=" + std::to_string(stage), 1, {});
    const Program program = lower({job, strategy, bundled_framework()})[0];
    const std::int64_t n = bucket_elements(program);
    const std::int64_t expected = stage == 1   ? 6 * n + 12 * n / d
                                  : stage == 2 ? 2 * n + 16 * n / d
                                               : 18 * n / d;
    EXPECT_EQ(persistent_model_bytes(program).count(), expected) << "stage " << stage;
  }
}

// The layer that is used and those that are prefetched.
TEST(ShardingStages, GatheredParametersThatLive) {
  Job job = nano_job();
  job.layers = 12;
  for (const std::int64_t depth : {0, 1, 2, 3}) {
    Strategy strategy = nano_strategy("sharding_degree=2,sharding_stage=3", 1, Recompute::full);
    strategy.gathers.prefetch_depth = depth;
    const Program program = nano_programs(strategy, job)[0];
    std::vector<Bytes> live(program.calls.size() + 1);
    Bytes layer;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.persistent || buffer.role != TensorRole::communication) continue;
      for (std::size_t call = buffer.begin; call < buffer.end; ++call) live[call] += buffer.bytes;
      layer = std::max(layer, buffer.bytes);
    }
    EXPECT_EQ(*std::max_element(live.begin(), live.end()), (depth + 1) * layer) << depth;
  }
}

// ---- what is sent ----

struct Traffic {
  std::int64_t collectives = 0;
  std::int64_t sent = 0;  ///< bytes by one rank, as in a ring: S (w-1)/w per gather or scatter
  bool operator==(const Traffic&) const = default;
};
/// By kind and the routine that posted it.
using Counted = std::map<std::pair<OpKind, std::string>, Traffic>;

/// Counts what passes through to the local communicator.
class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(Communicator& inner, const Grid& grid) : inner_(inner), grid_(grid) {}
  std::string_view name() const override { return inner_.name(); }
  Ticket post_collective(OpKind kind, const CollectiveParams& params,
                         const CollectiveOperand& operand,
                         const CommunicationLabel& label) override {
    const std::int64_t ranks = size(grid_, params.group);
    const std::int64_t rounds = kind == OpKind::all_reduce ? 2 : 1;
    Traffic& traffic = counted[{kind, label.routine}];
    ++traffic.collectives;
    traffic.sent +=
        rounds * operand.elements * bytes_of(operand.dtype).count() * (ranks - 1) / ranks;
    return inner_.post_collective(kind, params, operand, label);
  }
  Ticket post_send(std::int64_t stage_offset, Bytes size, const std::byte* data,
                   const CommunicationLabel& label) override {
    return inner_.post_send(stage_offset, size, data, label);
  }
  Ticket post_recv(std::int64_t stage_offset, Bytes size, std::byte* data,
                   const CommunicationLabel& label) override {
    return inner_.post_recv(stage_offset, size, data, label);
  }
  CommunicationTimes wait(Ticket ticket) override { return inner_.wait(ticket); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

  Counted counted;

 private:
  Communicator& inner_;
  Grid grid_;
};

/// One step on all ranks; what rank 0 posted.
Counted run_counted(const std::string& fields, std::int64_t micro_batches, const Job& job) {
  const Strategy strategy = nano_strategy(fields, micro_batches, Recompute::none);
  const std::vector<Program> programs = nano_programs(strategy, job);
  const Grid& grid = programs[0].grid;
  const auto epoch = std::chrono::steady_clock::now();
  const auto inner = make_local_communicators(grid, kPatient, epoch);
  std::vector<CountingCommunicator> ranks;
  for (const auto& communicator : inner) ranks.emplace_back(*communicator, grid);
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = make_backend("cpu");
      ExecutorOptions options;
      options.rank = rank;
      options.seed = job.seed;
      options.workspace = bundled_framework().memory.process.workspace;
      options.epoch = epoch;
      const auto stage = std::size_t(grid.coordinates(rank)[std::size_t(Axis::pp)]);
      Executor executor(programs[stage], *backend, ranks[std::size_t(rank)],
                        TrainingText{nano_text(), job.global_batch}, options);
      executor.step(0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks[0].counted;
}

Traffic total(const Counted& counted, OpKind kind, const std::string& part) {
  Traffic sum;
  for (const auto& [key, traffic] : counted) {
    if (key.first != kind || key.second.find(part) == std::string::npos) continue;
    sum.collectives += traffic.collectives;
    sum.sent += traffic.sent;
  }
  return sum;
}

// Ring, per rank and micro-batch, e bytes per element (4 here): all parameters are gathered for
// forward, e N (w-1)/w; those that backward reads again for it (the embedding reads none; the
// head's are still there); gradients are scattered once, 4 N (w-1)/w. Three passes are 1.5 times
// the two of plain data parallelism.
TEST(ShardingStages, CollectivesAndBytesOfStage3) {
  Job job = nano_job();
  job.layers = 6;
  const std::int64_t L = job.layers, h = job.hidden, w = 4;
  const std::int64_t in_layer = 12 * h * h + 13 * h;
  const std::int64_t embedding = (job.vocab + job.sequence) * h, head = job.vocab * h + 2 * h;
  const std::string stage3 = "sharding_degree=4,sharding_stage=3";
  struct Case {
    std::string gather;
    std::int64_t per_layer, in_embedding, in_head;
  };
  // GPT here computes query, key and value by one weight: 12 tensors in 6 modules (with three
  // weights, 16 and 8 as published). With biases and norms resident, the 4 weights are left.
  for (const Case& c :
       {Case{"layer", 1, 1, 1}, Case{"module", 6, 2, 2}, Case{"tensor", 12, 2, 3}}) {
    for (const std::int64_t m : {1, 2, 4}) {
      SCOPED_TRACE(c.gather + ", micro-batches " + std::to_string(m));
      const Counted counted = run_counted(stage3 + ",gather=" + c.gather, m, job);
      const std::int64_t all = L * in_layer + embedding + head;
      // From one micro-batch's backward to the next one's forward the first layer is still there.
      EXPECT_EQ(total(counted, OpKind::all_gather, "forward"),
                (Traffic{m * (L * c.per_layer + c.in_embedding + c.in_head) - (m - 1) * c.per_layer,
                         4 * (m * all - (m - 1) * in_layer) * (w - 1) / w}));
      EXPECT_EQ(total(counted, OpKind::all_gather, "backward"),
                (Traffic{m * L * c.per_layer, m * 4 * L * in_layer * (w - 1) / w}));
      EXPECT_EQ(
          total(counted, OpKind::reduce_scatter, ""),
          (Traffic{m * (L * c.per_layer + c.in_embedding + c.in_head), m * 4 * all * (w - 1) / w}));
    }
  }
  // Backward of m micro-batches, as in forward.
  const Counted resident = run_counted(stage3 + ",gather=tensor,persistence_threshold=256", 2, job);
  EXPECT_EQ(total(resident, OpKind::all_gather, "backward").collectives, 2 * 4 * L);
}

// Stage 2 gathers once per step, after the update, and scatters in every micro-batch.
TEST(ShardingStages, CollectivesAndBytesOfStage2) {
  const Job job = nano_job();
  const std::int64_t h = job.hidden, w = 2;
  const std::int64_t all =
      job.layers * (12 * h * h + 13 * h) + (job.vocab + job.sequence) * h + job.vocab * h + 2 * h;
  for (const std::int64_t m : {1, 4}) {
    const Counted counted = run_counted("sharding_degree=2,sharding_stage=2", m, job);
    EXPECT_EQ(total(counted, OpKind::all_gather, "").sent, 4 * all * (w - 1) / w);
    EXPECT_EQ(total(counted, OpKind::reduce_scatter, "").sent, m * 4 * all * (w - 1) / w);
  }
}

// With replicas beside the shards, only the shards are summed over them, once per step.
TEST(ShardingStages, ReplicasOfShardsAreSummedOncePerStep) {
  const Job job = nano_job();
  for (const std::string stage : {"2", "3"}) {
    for (const std::int64_t m : {1, 4}) {
      const Counted counted = run_counted("dp=2,sharding_degree=2,sharding_stage=" + stage, m, job);
      const Program program =
          nano_programs(nano_strategy("dp=2,sharding_degree=2,sharding_stage=" + stage, m, {}))[0];
      EXPECT_EQ(total(counted, OpKind::all_reduce, "kept").sent, 4 * bucket_elements(program) / 2);
    }
  }
}

// ---- parameters gathered beside the next forward, or at the end of the step ----

/// When rank 0 posts the first gather of parameters in the traced step, and its first forward op.
std::pair<Picoseconds, Picoseconds> gather_and_forward(const Timeline& timeline) {
  constexpr Picoseconds kNever{std::int64_t{1} << 60};
  Picoseconds gather = kNever, forward = kNever;
  for (const Interval& interval : timeline.intervals) {
    if (interval.rank != 0) continue;
    const bool completes =
        interval.kind == OpKind::all_gather || interval.kind == OpKind::broadcast;
    if (completes && interval.phase == Phase::optimizer) {
      gather = std::min(gather, interval.posted);
    }
    const bool computes = interval.stream == Stream::compute && interval.phase == Phase::forward;
    if (computes) forward = std::min(forward, interval.begin);
  }
  EXPECT_LT(gather, kNever);
  EXPECT_LT(forward, kNever);
  return {gather, forward};
}

TEST(ParameterGathers, BesideTheNextForwardTrainTheSameModel) {
  for (const std::string fields :
       {"sharding_degree=2", "sharding_degree=2,sharding_stage=2", "mp=2,pp=2,sharding_degree=2",
        "dp=2,sharding_degree=2,sharding_owner=greedy,param_bucket_bytes=64KiB"}) {
    SCOPED_TRACE(fields);
    Strategy strategy = nano_strategy(fields, 2, Recompute::none);
    TrainOptions options;
    options.steps = 4;
    options.warm_up_steps = 0;
    options.keep_parameters = true;
    const TrainResult beside = train_nano(nano_programs(strategy), options);
    strategy.gathers.overlap = false;
    const TrainResult after = train_nano(nano_programs(strategy), options);
    EXPECT_EQ(beside.measured.losses, after.measured.losses);
    EXPECT_EQ(beside.measured.gradient_norms, after.measured.gradient_norms);
    EXPECT_EQ(beside.parameters, after.parameters) << "whole after the last step, too";
    EXPECT_EQ(beside.traffic, after.traffic);
    for (std::size_t rank = 0; rank < after.measured.timeline.memory.size(); ++rank) {
      EXPECT_EQ(beside.measured.timeline.memory[rank].peak,
                after.measured.timeline.memory[rank].peak);
    }
    const auto [early, before] = gather_and_forward(beside.measured.timeline);
    EXPECT_LT(early, before);
    const auto [late, forward] = gather_and_forward(after.measured.timeline);
    EXPECT_GT(late, forward);
  }
}

// ---- where parameters are gathered anew ----

std::int64_t gathers(const std::string& fields, std::int64_t micro_batches) {
  const Job job = nano_job();
  const Counted counted =
      run_counted("sharding_degree=2,sharding_stage=3," + fields, micro_batches, job);
  return total(counted, OpKind::all_gather, "").collectives;
}

TEST(ShardingStages, WhatIsKeptIsNotGatheredAgain) {
  const std::int64_t L = nano_job().layers;
  // Forward: embedding, layers, head; backward: layers.
  EXPECT_EQ(gathers("prefetch_depth=0", 2), 2 * (2 * L + 2));
  // The first layer is kept between two micro-batches, since the prefetch would gather it again.
  EXPECT_EQ(gathers("prefetch_depth=1", 2), 2 * (2 * L + 2) - 1);
  // Kept from forward to backward: once per micro-batch.
  EXPECT_EQ(gathers("keep_gathered=true,prefetch_depth=0", 2), 2 * (L + 2));
  // All forwards come first, so what one micro-batch keeps serves the next.
  EXPECT_EQ(gathers("keep_gathered=true,schedule=gpipe", 2), L + 2 + 1);
  // Everything is used again soon enough.
  EXPECT_EQ(gathers("reuse_distance_bytes=1073741824", 2), L + 2);
  // ... but there is no room for it: as if nothing were kept.
  EXPECT_EQ(gathers("reuse_distance_bytes=1073741824,max_live_bytes=4096", 2), 2 * (2 * L + 2));
  // Everything stays whole: gathered once, when the step begins.
  EXPECT_EQ(gathers("persistence_threshold=1000000", 2), L + 2);
}

}  // namespace
}  // namespace plimsoll
