// Where backward frees gradients, each layer is updated behind its backward, and a rank never has
// the gradients of all layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job unclipped_nano(bool tied = false) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/llama-nano.json");
  job.clip_norm = 0;
  job.tied_embeddings = tied;
  return job;
}

Strategy in_one_micro_batch(const Job& job, const std::string& fields) {
  Strategy strategy = parse_strategy(fields);
  strategy.micro_batch = job.global_batch / (strategy.dp * strategy.sharding_degree);
  return strategy;
}

Program freed_program(const Job& job, const std::string& fields) {
  return lower({job, in_one_micro_batch(job, fields), bundled_framework()}).front();
}

/// The operand of a call's op that is bound to a slot of this kind.
const Binding* binding_of(const Program& program, const Call& call, SlotKind kind) {
  const std::vector<Slot>& slots = program.at(call.routine).slots;
  const auto found = std::ranges::find(slots, kind, &Slot::kind);
  return found == slots.end() ? nullptr : &call.bindings[std::size_t(found - slots.begin())];
}

const AdamParams* update_of(const Program& program, const Call& call) {
  for (const Op& op : program.at(call.routine).ops) {
    if (const auto* params = std::get_if<AdamParams>(&op.params)) return params;
  }
  return nullptr;
}

std::int64_t all_elements(const Program& program) {
  return program.buckets.back().begin + program.buckets.back().elements;
}

TEST(ReleaseGradients, EachLayerIsUpdatedBehindItsBackward) {
  for (const char* fields : {"release_gradients=true", "release_gradients=true,dp=2",
                             "release_gradients=true,sharding_degree=2,sharding_stage=2"}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(std::string(fields) + (tied ? ", tied" : ""));
      const Program program = freed_program(unclipped_nano(tied), fields);
      std::map<std::int64_t, std::int64_t> updated;  // end, by begin
      std::map<BufferId, std::size_t> written;       // last call of backward, by buffer
      for (std::size_t i = 0; i < program.calls.size(); ++i) {
        const Call& call = program.calls[i];
        for (const SlotKind kind : {SlotKind::gradients, SlotKind::tied_gradients}) {
          if (const Binding* to = binding_of(program, call, kind)) written[to->buffer] = i;
        }
        const AdamParams* update = update_of(program, call);
        if (update == nullptr) continue;
        const Binding* from = binding_of(program, call, SlotKind::gradient_arena);
        ASSERT_NE(from, nullptr);
        EXPECT_TRUE(written.contains(from->buffer));
        EXPECT_FALSE(program.at(from->buffer).persistent);
        EXPECT_TRUE(updated.emplace(update->begin, update->end).second);
      }
      for (const auto& [buffer, last] : written) {  // no call writes what is updated already
        EXPECT_LE(last, program.at(buffer).end);
        EXPECT_NE(update_of(program, program.calls[program.at(buffer).end - 1]), nullptr);
      }
      std::int64_t end = 0;
      for (const auto& [begin, to] : updated) {
        EXPECT_EQ(begin, end);
        end = to;
      }
      EXPECT_EQ(end, all_elements(program));
    }
  }
}

/// Behind the update of a range no call of backward reads its parameters.
TEST(ReleaseGradients, ParametersAreReadBeforeTheirUpdate) {
  for (const bool tied : {false, true}) {
    const Program program =
        freed_program(unclipped_nano(tied), "release_gradients=true,recompute=full");
    const Bytes element = bytes_of(DType::f32);
    std::map<std::int64_t, std::int64_t> updated;
    for (const Call& call : program.calls) {
      if (const AdamParams* update = update_of(program, call)) {
        updated[update->begin] = update->end;
        continue;
      }
      for (const SlotKind kind : {SlotKind::parameters, SlotKind::tied_parameters}) {
        const Binding* read = binding_of(program, call, kind);
        if (read == nullptr) continue;
        const std::int64_t at = read->offset.count() / element.count();
        for (const auto& [begin, end] : updated) EXPECT_TRUE(at < begin || at >= end);
      }
    }
  }
}

/// The gradients that are alive in a call.
Bytes gradients_in(const Program& program, std::size_t call) {
  Bytes sum;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role == TensorRole::gradient && buffer.begin <= call && call < buffer.end)
      sum += round_up(buffer.bytes, kBlockAlignment);
  }
  return sum;
}

TEST(ReleaseGradients, OnlyThoseOfALayerAreThere) {
  const Job job = unclipped_nano();
  const Program kept = freed_program(job, "mp=1"),
                released = freed_program(job, "release_gradients=true");
  std::int64_t largest = 0;
  for (const Call& call : released.calls) {
    if (const AdamParams* update = update_of(released, call))
      largest = std::max(largest, update->end - update->begin);
  }
  const Bytes element = bytes_of(DType::f32);
  Bytes most;
  for (std::size_t i = 0; i < released.calls.size(); ++i)
    most = std::max(most, gradients_in(released, i));
  EXPECT_EQ(most, round_up(largest * element, kBlockAlignment));
  const MemoryPeak before = memory_peak(kept), behind = memory_peak(released);
  EXPECT_EQ(before.by_role[std::size_t(TensorRole::gradient)],
            round_up(all_elements(kept) * element, kBlockAlignment));
  // Both Programs have the same other buffers in the call of the peak.
  EXPECT_GE(before.peak - behind.peak, Bytes(all_elements(kept) * element) - most);
  EXPECT_LE(before.peak - behind.peak, Bytes(all_elements(kept) * element) -
                                           behind.by_role[std::size_t(TensorRole::gradient)]);
}

TEST(ReleaseGradients, TheirRules) {
  Job job = unclipped_nano();
  job.precision = DType::bf16;
  const auto reason = [&](const std::string& fields) {
    const Strategy strategy = in_one_micro_batch(job, "release_gradients=true" + fields);
    return legal(job, strategy, grid_of(strategy).world_size()).reason();
  };
  EXPECT_EQ(reason(""), "");
  EXPECT_EQ(reason(",dp=2"), "");
  EXPECT_EQ(reason(",sharding_degree=2,sharding_stage=3"), "");
  EXPECT_EQ(reason(",pp=2"), "release_gradients: pp is 2; it must be 1");
  EXPECT_EQ(reason(",sharding_degree=2"),
            "release_gradients: sharding_stage is 1, which keeps all gradients; it must be 0, 2 "
            "or 3");
  EXPECT_EQ(reason(",sharding_degree=2,sharding_stage=2,sharding_owner=prefix"),
            "release_gradients: sharding_owner must be elements");
  EXPECT_EQ(reason(",offload_optimizer_percent=40"),
            "release_gradients: offload_optimizer_percent must be 0: the host updates once per "
            "step");
  for (const char* other : {",flatten=none", ",flatten=coalesced", ",cast_placement=after_update",
                            ",cast_placement=every_use"})
    EXPECT_EQ(reason(other), "release_gradients: flatten and cast_placement must be fused");
  EXPECT_EQ(reason(",gradient_merge=tensor"), "release_gradients: gradient_merge must be direct");
  EXPECT_EQ(reason(",gradient_type=computed"),
            "release_gradients: main_gradient_type must be gradient_type");
  EXPECT_EQ(reason(",gradient_type=computed,main_gradient_type=computed"), "");
  Strategy two = in_one_micro_batch(job, "release_gradients=true");
  two.micro_batch /= 2;
  EXPECT_EQ(legal(job, two, 1).reason(),
            "release_gradients: gradients of 2 micro-batches are added up; there must be 1");
  job.clip_norm = 1;
  EXPECT_EQ(reason(""), "release_gradients: clip_norm is 1; the norm is of all gradients at once");
  job.clip_norm = 0;
  job.optimizer.kind = OptimizerKind::sgd;
  EXPECT_EQ(reason(""), "release_gradients: the optimizer must be adamw");
  job = unclipped_nano();
  job.precision = DType::f16;
  job.loss_scale = LossScale{};
  EXPECT_EQ(reason(""),
            "release_gradients: whether a step counts with loss_scale depends on all gradients");
  job = unclipped_nano();
  job.precision = DType::bf16;
  job.fp32_parameters = {"norm"};
  EXPECT_EQ(reason(""), "release_gradients: it excludes fp32_parameters with another precision");
  job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/expert-nano.json");
  job.clip_norm = 0;
  EXPECT_EQ(reason(",ep=2,dp=2"),
            "release_gradients: ep and etp: whether rows of experts had memory is known behind "
            "backward");
}

TEST(ReleaseGradients, AFrameworkMayUpdateBehindBackward) {
  const Strategy strategy = parse_strategy("release_gradients=true");
  EXPECT_NE(legal(framework_by_name("megatron-lm"), strategy)
                .reason()
                .find("updates parameters behind backward"),
            std::string::npos);
  EXPECT_TRUE(legal(framework_by_name("torchtitan"), strategy));
}

}  // namespace
}  // namespace plimsoll
