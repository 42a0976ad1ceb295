// Whole tensors owned by ranks, executed: what is sent, how often, and what memory is left; equal
// to the closed forms of the reference's section 1.5.
#include <gtest/gtest.h>

#include "graph/traffic.h"
#include "passes/pipeline.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

TrainResult run(const std::vector<Program>& programs, const Job& job = nano_job()) {
  TrainOptions options;
  options.steps = 2;
  options.warm_up_steps = 0;
  return train_nano(programs, options, job);
}

const Group kSharding{{Axis::sharding}, false};

Traffic of(const std::vector<Traffic>& traffic, OpKind kind, const Group& group = kSharding) {
  for (const Traffic& one : traffic) {
    if (one.kind == kind && one.group == group) return one;
  }
  return {kind, group, 0, {}};
}

Strategy strategy_of(const std::string& fields) {
  return nano_strategy(fields, 1, Recompute::none);
}

TEST(Traffic, StatesWhatEachMemberSends) {
  // 10 elements of 4 bytes on 4 ranks: own parts of 3, 3, 2, 2.
  const auto sent = [](OpKind kind, std::int64_t index, std::int64_t root = 0) {
    return sent_bytes(kind, 10, Bytes(4), 4, index, root).count();
  };
  EXPECT_EQ(sent(OpKind::all_reduce, 0), 2 * 7 * 4);
  EXPECT_EQ(sent(OpKind::all_reduce, 3), 2 * 8 * 4);
  EXPECT_EQ(sent(OpKind::reduce, 2, 2), 0);
  EXPECT_EQ(sent(OpKind::reduce, 1, 2), 40);
  EXPECT_EQ(sent(OpKind::broadcast, 1, 2), 0);  // the last of the chain 2, 3, 0, 1
  EXPECT_EQ(sent(OpKind::broadcast, 2, 2), 40);
  for (OpKind kind : {OpKind::all_reduce, OpKind::reduce, OpKind::broadcast}) {
    std::int64_t total = 0;
    for (std::int64_t index = 0; index < 4; ++index) total += sent(kind, index, 3);
    EXPECT_EQ(total, (kind == OpKind::all_reduce ? 2 : 1) * 3 * 40);
  }
}

TEST(OwnerMode, SendsWhatAnAllReduceSends) {
  for (const std::int64_t degree : {2, 4}) {
    for (const char* owner : {"prefix", "greedy", "sorted_greedy"}) {
      const auto programs = nano_programs(
          strategy_of("sharding_degree=" + std::to_string(degree) + ",sharding_owner=" + owner));
      const TrainResult result = run(programs);
      Bytes reduced, broadcast;
      for (std::int64_t rank = 0; rank < degree; ++rank) {
        const auto& traffic = result.traffic[std::size_t(rank)];
        EXPECT_EQ(traffic, step_traffic(programs[std::size_t(rank)], rank));
        reduced += of(traffic, OpKind::reduce).sent;
        broadcast += of(traffic, OpKind::broadcast).sent;
        EXPECT_EQ(of(traffic, OpKind::reduce).count,
                  std::int64_t(programs[std::size_t(rank)].buckets.size()));
      }
      // Per rank (d - 1) / d of all bytes each way; with padding.
      const Bytes all = bucket_elements(programs[0]) * Bytes(4);
      EXPECT_EQ(reduced, (degree - 1) * all) << owner;
      EXPECT_EQ(broadcast, (degree - 1) * all) << owner;
    }
  }
}

TEST(OwnerMode, WithoutFusionEveryTensorIsACollective) {
  const auto programs =
      nano_programs(strategy_of("sharding_degree=2,sharding_owner=prefix,collective_fusion=none"));
  const TrainResult result = run(programs);
  const auto tensors = std::int64_t(programs[0].segments.size());
  for (const auto& traffic : result.traffic) {
    EXPECT_EQ(of(traffic, OpKind::reduce).count, tensors);
    EXPECT_EQ(of(traffic, OpKind::broadcast).count, tensors);
  }
  // Fused, one per owner where the limit holds everything.
  const auto fused = nano_programs([] {
    Strategy strategy = strategy_of("sharding_degree=2,sharding_owner=prefix");
    strategy.gradients.bucket_bytes = strategy.gathers.bucket_bytes = Bytes(32 << 20);
    return strategy;
  }());
  for (const auto& traffic : run(fused).traffic) {
    EXPECT_EQ(of(traffic, OpKind::reduce).count, 2);
    EXPECT_EQ(of(traffic, OpKind::broadcast).count, 2);
  }
}

TEST(OwnerMode, ReplicasReduceWhatTheyOwn) {
  const auto programs = nano_programs(strategy_of("dp=2,sharding_degree=2,sharding_owner=greedy"));
  const TrainResult result = run(programs);
  const Group dp{{Axis::dp}, false};
  Bytes total;
  for (const auto& traffic : result.traffic) total += of(traffic, OpKind::all_reduce, dp).sent;
  // Each of the two owners: 2 (dp - 1) times what it owns, over two replicas of each.
  EXPECT_EQ(total, 2 * bucket_elements(programs[0]) * Bytes(4));
}

Bytes persistent(const Program& program) {
  Bytes total;
  for (const Buffer& buffer : program.buffers) {
    const bool counted = buffer.role != TensorRole::scalar && buffer.role != TensorRole::workspace;
    if (buffer.persistent && counted) total += buffer.bytes;
  }
  return total;
}

// A8: bytes per parameter element with Adam and f32 merged gradients, as means over the owners.
TEST(OwnerMode, A8BytesPerElement) {
  const auto bytes = [](const std::string& fields, DType precision) {
    Job job = nano_job();
    job.precision = precision;
    const Framework framework = framework_by_name("megatron-lm");
    const Strategy strategy = strategy_of(fields);
    const auto programs =
        lower({job, strategy, precision == DType::f32 ? bundled_framework() : framework});
    Bytes total;
    for (const Program& program : programs) total += persistent(program);
    return double(total.count()) / double(programs.size()) / double(bucket_elements(programs[0]));
  };
  EXPECT_EQ(bytes("dp=4", DType::f32), 16);
  EXPECT_EQ(bytes("sharding_degree=4,sharding_owner=prefix", DType::f32), 8 + 8 / 4.0);
  EXPECT_EQ(bytes("sharding_degree=4,sharding_owner=prefix", DType::bf16), 6 + 12 / 4.0);
  // The cast saves memory for degrees above 2 only.
  EXPECT_EQ(bytes("sharding_degree=2,sharding_owner=prefix", DType::f32), 12);
  EXPECT_EQ(bytes("sharding_degree=2,sharding_owner=prefix", DType::bf16), 12);
}

}  // namespace
}  // namespace plimsoll
