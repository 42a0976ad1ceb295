// A bf16 job's Programs: bytes per parameter, bytes of activations, what travels.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/verify/verify.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job bf16_nano() {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.precision = DType::bf16;
  return job;
}

std::vector<Program> lowered(const std::string& strategy, const Job& job = bf16_nano()) {
  const Strategy parsed = parse_strategy(strategy);
  const Framework framework = bundled_framework();
  return lower({job, parsed, framework});
}

/// Bytes of the arenas of all parameters together, over their padded elements.
std::int64_t arena_bytes(const Program& program) {
  Bytes total;
  for (const Buffer& buffer : program.buffers) {
    const bool arena =
        buffer.role == TensorRole::parameter || buffer.role == TensorRole::master_parameter ||
        buffer.role == TensorRole::gradient || buffer.role == TensorRole::optimizer_state;
    if (arena) total += buffer.bytes;
  }
  return total.count();
}

std::int64_t arena_elements(const Program& program) {
  std::int64_t elements = 0;
  for (const Bucket& bucket : program.buckets) elements += bucket.elements;
  return elements;
}

TEST(MixedPrecision, EighteenBytesPerParameterAndSixAndTwelfthsSharded) {
  for (const char* strategy : {"mp=1", "mp=2,pp=2,dp=2"}) {
    for (const Program& program : lowered(strategy)) {
      EXPECT_EQ(arena_bytes(program), 18 * arena_elements(program)) << strategy;
    }
  }
  const Program sharded = lowered("sharding_degree=4")[0];
  EXPECT_EQ(arena_bytes(sharded), 6 * arena_elements(sharded) + 12 * arena_elements(sharded) / 4);
  Job fp32 = bf16_nano();
  fp32.precision = DType::f32;
  const Program plain = lowered("mp=1", fp32)[0];
  EXPECT_EQ(arena_bytes(plain), 16 * arena_elements(plain));
}

TEST(MixedPrecision, ParametersOfAProgramStartAtWholeBlocks) {
  // Shards and parameters begin at multiples of 64 B in the smaller type too.
  const Program program = lowered("sharding_degree=4,grad_bucket_bytes=16KiB")[0];
  for (const Segment& segment : program.segments) EXPECT_EQ(segment.offset * 2 % (64 * 4), 0);
  for (const Bucket& bucket : program.buckets) EXPECT_EQ(bucket.elements * 2 / 4 % 64, 0);
}

const Routine& routine_of(const Program& program, const std::string& name) {
  const auto found = std::find_if(program.routines.begin(), program.routines.end(),
                                  [&](const Routine& routine) { return routine.name == name; });
  EXPECT_NE(found, program.routines.end()) << name;
  return *found;
}

Bytes slot_bytes(const Routine& routine, SlotKind kind) {
  for (const Slot& slot : routine.slots) {
    if (slot.kind == kind) return slot.bytes;
  }
  ADD_FAILURE() << routine.name << " has no slot " << to_text(kind);
  return {};
}

TEST(MixedPrecision, SavedBytesOfALayerByHand) {
  // 16 sequences of 32 tokens, hidden 64, 4 heads, ffn 256: n = 512.
  const std::int64_t n = 512, h = 64, f = 256, a = 4, s = 32, b = 16;
  const Program program = lowered("micro_batch=16")[0];
  // In bf16: both norms' outputs, q, k, v, the merged heads, the sum between the halves; fc1 and
  // its GELU; the probabilities. In f32: two means and two deviations.
  const std::int64_t expected = 2 * (7 * n * h + 2 * n * f + b * a * s * s) + 4 * 4 * n;
  const Routine& layer = routine_of(program, "layer.forward");
  EXPECT_EQ(slot_bytes(layer, SlotKind::saved), Bytes(expected));
  EXPECT_EQ(slot_bytes(layer, SlotKind::output), Bytes(2 * n * h));
  // The head has f32 logits, log-sum-exp and norm statistics, i32 targets, and the norm's bf16
  // output.
  const Routine& head = routine_of(program, "head.forward");
  EXPECT_EQ(slot_bytes(head, SlotKind::saved),
            Bytes(4 * n * 256 + 4 * n + 2 * 4 * n + 4 * n + 2 * n * h));
  // Selective recompute drops the probabilities alone.
  const Program selective = lowered("micro_batch=16,recompute=selective")[0];
  EXPECT_EQ(slot_bytes(routine_of(selective, "layer.forward"), SlotKind::saved),
            Bytes(expected - 2 * b * a * s * s));
}

TEST(MixedPrecision, StagesSendAndShardsGatherBf16WhileGradientsReduceF32) {
  const std::vector<Program> programs = lowered("pp=2,sharding_degree=2,dp=2,micro_batch=2");
  for (const Program& program : programs) {
    std::size_t gathers = 0, scatters = 0;
    for (const Call& call : program.calls) {
      const Routine& routine = program.at(call.routine);
      const Tensor& first = routine.tensors[0];
      switch (routine.ops[0].kind) {
        case OpKind::send:
        case OpKind::recv:
          EXPECT_EQ(first.dtype, DType::bf16);
          EXPECT_EQ(bytes_of(first), Bytes(2 * 2 * 32 * 64));
          break;
        case OpKind::all_gather:
          EXPECT_EQ(bytes_of(first), Bytes(2 * program.buckets[gathers++].elements));
          break;
        case OpKind::reduce_scatter:
          EXPECT_EQ(bytes_of(first), Bytes(4 * program.buckets[scatters++].elements));
          break;
        case OpKind::all_reduce:
          EXPECT_EQ(first.dtype, DType::f32);
          break;
        default:
          break;
      }
    }
    EXPECT_EQ(gathers, program.buckets.size());
    EXPECT_EQ(scatters, program.buckets.size());
  }
}

}  // namespace
}  // namespace plimsoll
