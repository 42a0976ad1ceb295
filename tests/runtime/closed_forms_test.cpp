// The closed forms of the reference's sections 1.5, 2.5, 3.5 and 4.5, counted in executed runs:
// casts, collectives, ops of the optimizer phase, bytes sent per rank and axis, live send buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "graph/traffic.h"
#include "passes/pipeline.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

/// gpt-nano with micro-batches of one sequence, in bf16 where it says so, and what a step of it
/// did.
struct Counted {
  Job job = nano_job();
  Strategy strategy;
  std::vector<Program> programs;
  TrainResult result;

  Counted(const std::string& fields, std::int64_t micro_batches, DType precision = DType::f32,
          std::int64_t layers = 4) {
    job.precision = precision;
    job.layers = layers;
    strategy = parse_strategy(fields);
    strategy.gradients.bucket_bytes = strategy.gathers.bucket_bytes = Bytes(32 << 20);
    job.global_batch = micro_batches * strategy.dp * strategy.sharding_degree;
    Framework framework = bundled_framework();
    framework.kernels.squared_norm = false;              // as section 3.5 counts
    framework.parallelism.recompute_repeats_all = true;  // as checkpoints do
    programs = lower({job, strategy, framework});
    TrainOptions options;
    options.steps = 2;
    options.warm_up_steps = 0;
    result = train(programs, job, framework, nano_text(), options);
  }

  const Program& program(std::int64_t rank) const {
    return programs[class_of(programs, programs[0].grid.coordinates(rank))];
  }
  std::int64_t ranks() const { return programs[0].grid.world_size(); }
  std::int64_t tensors() const { return std::int64_t(programs[0].segments.size()); }
  /// Returns the elements of the arenas that travel, with their padding.
  Bytes elements(std::int64_t rank) const {
    const Bucket& last = program(rank).buckets.back();
    return Bytes(last.begin + last.elements);
  }
  /// Intervals of the traced step.
  std::int64_t count(std::int64_t rank, const std::function<bool(const Interval&)>& counts) const {
    const auto& intervals = result.measured.timeline.intervals;
    return std::count_if(intervals.begin(), intervals.end(), [&](const Interval& interval) {
      return interval.rank == rank && counts(interval);
    });
  }
  std::int64_t count(std::int64_t rank, OpKind kind) const {
    return count(rank, [&](const Interval& interval) { return interval.kind == kind; });
  }
  Traffic sent(std::int64_t rank, OpKind kind, Axis axis) const {
    Traffic sum{kind, Group{{axis}}, 0, {}};
    for (const Traffic& one : result.traffic[std::size_t(rank)]) {
      if (one.kind == kind && one.group.axes == sum.group.axes) {
        sum.count += one.count;
        sum.sent += one.sent;
      }
    }
    return sum;
  }
};

// ---- 1.5 ----

/// Casts of parameters: two others are of the logits and their gradient, in every micro-batch.
std::int64_t parameter_casts(const Counted& run, std::int64_t rank, std::int64_t micro_batches) {
  return run.count(rank, OpKind::cast) + run.count(rank, OpKind::cast_parameters) -
         2 * micro_batches;
}

TEST(Section1_5, Casts) {
  const std::int64_t in_layers = 12 * 4;
  for (const std::int64_t m : {1, 4}) {
    const Counted every("cast_placement=every_use,flatten=none", m, DType::bf16);
    const std::int64_t n = every.tensors();
    EXPECT_EQ(parameter_casts(every, 0, m), n * m);
    const Counted again("cast_placement=every_use,flatten=none,recompute=full", m, DType::bf16);
    EXPECT_EQ(parameter_casts(again, 0, m), (n + in_layers) * m);  // layers are repeated
    for (const std::int64_t d : {2, 4}) {
      const Counted moved(
          "cast_placement=after_update,flatten=none,recompute=full,"
          "sharding_owner=greedy,sharding_degree=" +
              std::to_string(d),
          m, DType::bf16);
      std::int64_t casts = 0;
      for (std::int64_t rank = 0; rank < d; ++rank) casts += parameter_casts(moved, rank, m);
      EXPECT_EQ(casts, n);  // n / d on a rank, in the mean
    }
  }
}

TEST(Section1_5, BytesSentPerRankAndCollectives) {
  for (const std::int64_t d : {2, 4}) {
    const std::string degree = std::to_string(d);
    const Counted replicas("dp=" + degree, 2), shards("sharding_degree=" + degree, 2);
    for (const DType type : {DType::f32, DType::bf16}) {
      const Counted owners("sharding_owner=prefix,sharding_degree=" + degree, 2, type);
      const std::int64_t e = type == DType::f32 ? 4 : 2;
      Bytes reduced, broadcast;
      for (std::int64_t rank = 0; rank < d; ++rank) {
        // One of the groups of each owner.
        const Traffic reduce = owners.sent(rank, OpKind::reduce, Axis::sharding);
        const Traffic back = owners.sent(rank, OpKind::broadcast, Axis::sharding);
        EXPECT_EQ(reduce.count, d);
        EXPECT_EQ(back.count, d);
        reduced += reduce.sent;
        broadcast += back.sent;
      }
      // In the mean (d - 1) / d of 4 N and of e N: together 6 N in 16 bits, 0.75 of the f32 form.
      EXPECT_EQ(reduced, (d - 1) * 4 * owners.elements(0));
      EXPECT_EQ(broadcast, (d - 1) * e * owners.elements(0));
    }
    // Equal parts: 2 (d - 1) / d of 4 N in the mean (and of the loss), or half of it each way.
    Bytes summed, scattered, gathered;
    for (std::int64_t rank = 0; rank < d; ++rank) {
      summed += replicas.sent(rank, OpKind::all_reduce, Axis::dp).sent;
      scattered += shards.sent(rank, OpKind::reduce_scatter, Axis::sharding).sent;
      gathered += shards.sent(rank, OpKind::all_gather, Axis::sharding).sent;
    }
    EXPECT_EQ(summed, 2 * (d - 1) * (4 * replicas.elements(0) + Bytes(4)));
    EXPECT_EQ(scattered, (d - 1) * 4 * shards.elements(0));
    EXPECT_EQ(gathered, (d - 1) * 4 * shards.elements(0));
  }
}

// ---- 2.5 ----

TEST(Section2_5, LiveSendBuffersOfEveryStage) {
  const std::int64_t P = 4;
  const Bytes boundary(32 * 64 * 4);  // sequence x hidden x f32
  for (const std::int64_t m : {4, 8}) {
    for (const std::string lifetime : {"event", "held", "published"}) {
      const Counted run("pp=4,send_lifetime=" + lifetime, m);
      for (std::int64_t s = 0; s < P; ++s) {
        const Program& program = run.program(s);
        // Forward: freed with the gradient of its micro-batch, or two slots. Backward: at the end,
        // as PR 34230 frees them, or two slots.
        const std::int64_t forward = lifetime == "event" ? 2 : std::min(m, P - s);
        const std::int64_t backward = lifetime == "event"  ? 2
                                      : lifetime == "held" ? m
                                                           : std::min(m, P - s + 1);
        const auto most = [&](const std::string& name) {
          std::int64_t most = 0;
          for (std::size_t call = 0; call < program.calls.size(); ++call) {
            most = std::max<std::int64_t>(
                most, std::count_if(program.buffers.begin(), program.buffers.end(),
                                    [&](const Buffer& buffer) {
                                      return buffer.name == name && buffer.bytes == boundary &&
                                             buffer.begin <= call && call < buffer.end;
                                    }));
          }
          return most;
        };
        EXPECT_EQ(most("sent_activation"), s + 1 < P ? forward : 0) << lifetime << s;
        EXPECT_EQ(most("sent_gradient"), s > 0 ? backward : 0) << lifetime << s;
        // The run had exactly these buffers (C1 counts them call by call in runtime.schedules).
        const MemoryPeak predicted = memory_peak(program);
        EXPECT_EQ(run.result.measured.timeline.memory[std::size_t(s)].by_role, predicted.by_role);
        Bytes sent;
        for (const Traffic& one : run.result.traffic[std::size_t(s)]) {
          if (one.kind == OpKind::send) sent += one.sent;
        }
        EXPECT_EQ(sent, ((s + 1 < P) + (s > 0)) * m * boundary);
      }
    }
  }
}

// ---- 3.5 ----

TEST(Section3_5, OpsOfTheOptimizerPhase) {
  for (const std::int64_t layers : {1, 4}) {
    const auto ops = [&](const std::string& flatten) {
      Counted run("flatten=" + flatten, 1, DType::f32, layers);
      return run.count(0, [](const Interval& interval) {
        return interval.phase == Phase::optimizer && interval.routine != "begin_step";
      });
    };
    const std::int64_t n = 12 * layers + 5;
    EXPECT_EQ(ops("none"), 4 * n + 5);
    // Weights decay, biases and norms do not: two groups of 2 copies, square, sum, scaling and
    // update, then 5 ops for all.
    EXPECT_EQ(ops("coalesced"), 2 * 6 + 5);
  }
}

// ---- 4.5 ----

TEST(Section4_5, GathersAndBytesOfStage3) {
  const std::int64_t w = 4, m = 2, L = 4, h = 64;
  const std::int64_t layer = 12 * h * h + 13 * h;
  const std::pair<const char*, std::int64_t> cases[] = {
      {"tensor", 12}, {"module", 6}, {"layer", 1}};
  for (const auto& [gather, per_layer] : cases) {
    const Counted run(
        "sharding_degree=4,sharding_stage=3,prefetch_depth=0,gather=" + std::string(gather), m);
    const std::int64_t others = run.elements(0).count() - L * layer;
    for (std::int64_t rank = 0; rank < w; ++rank) {
      // Layers in forward and again in backward; what lies around them once.
      const auto in_layers = [&](OpKind kind) {
        return run.count(rank, [&](const Interval& interval) {
          return interval.kind == kind && interval.stream == Stream::data;
        });
      };
      const std::int64_t around = in_layers(OpKind::reduce_scatter) - m * L * per_layer;
      EXPECT_EQ(in_layers(OpKind::all_gather), 2 * m * L * per_layer + around);
      EXPECT_EQ(around % m, 0);
      // e N (w - 1) / w of each of three passes.
      EXPECT_EQ(run.sent(rank, OpKind::all_gather, Axis::sharding).sent.count(),
                m * 4 * (2 * L * layer + others) * (w - 1) / w);
      EXPECT_EQ(run.sent(rank, OpKind::reduce_scatter, Axis::sharding).sent.count(),
                m * 4 * (L * layer + others) * (w - 1) / w);
    }
  }
}

}  // namespace
}  // namespace plimsoll
