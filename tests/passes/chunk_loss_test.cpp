// A head with a loss in chunks has memory for the logits of one chunk, and the same products.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Program chunked(const std::string& strategy) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/llama-nano.json");
  return lower({job, parse_strategy(strategy), bundled_framework()}).front();
}

bool has_loss(const Routine& routine) {
  return std::ranges::any_of(routine.ops,
                             [](const Op& op) { return op.kind == OpKind::token_loss; });
}

Flops product_flops(const Program& program) {
  Flops sum;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind == OpKind::matmul) sum += flops(op, routine.tensors);
    }
  }
  return sum;
}

TEST(ChunkLoss, EachChunkIsOneCallInBackward) {
  const Program program = chunked("micro_batch=2,loss_chunks=4");
  std::int64_t next = 0;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    if (!has_loss(routine)) continue;
    EXPECT_EQ(routine.phase, Phase::backward);
    EXPECT_EQ(call.part, next % 4);
    EXPECT_EQ(*call.micro_batch, next / 4);
    ++next;
    for (std::size_t s = 0; s < routine.slots.size(); ++s) {
      const Slot& slot = routine.slots[s];
      EXPECT_NE(slot.kind, SlotKind::saved);
      if (slot.kind == SlotKind::input || slot.kind == SlotKind::input_gradient) {
        EXPECT_EQ(call.bindings[s].offset, call.part * slot.bytes);
      }
    }
  }
  EXPECT_EQ(next, 4 * program.micro_batches);
}

TEST(ChunkLoss, OnlyTheLogitsOfOneChunkExist) {
  const Program whole = chunked("micro_batch=2"), parts = chunked("micro_batch=2,loss_chunks=4");
  const auto logits = [](const Program& program) {
    for (const Routine& routine : program.routines) {
      for (const Op& op : routine.ops) {
        if (op.kind == OpKind::logits_sum_exp)
          return bytes_of(routine.tensors[op.inputs[0].index()]);
      }
    }
    return Bytes();
  };
  EXPECT_EQ(4 * logits(parts), logits(whole));
  EXPECT_LE(parts.arena_bytes, whole.arena_bytes);
  EXPECT_EQ(product_flops(parts), product_flops(whole));
}

}  // namespace
}  // namespace plimsoll
