// Gradients that a replay allocates as frameworks do: by layer, and for parts of the loss.
#include <gtest/gtest.h>

#include "passes/pipeline.h"
#include "simulator/memory/allocation_replay.h"
#include "simulator/memory/routine_events.h"

namespace plimsoll {
namespace {

constexpr Bytes kUnlimited{std::int64_t{1} << 60};

Job gpt() { return read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json"); }

// The head's backward is the first, so that a long vocabulary has the peak there.
TEST(GradientMemory, GradientsOfALayerExistFromItsBackwardOn) {
  Job job = gpt();
  job.layers = 16;
  job.vocab = 1 << 15;
  Framework framework = framework_by_name("pytorch-fsdp");
  for (const char* text : {"dp=1", "dp=2", "sharding_degree=2,sharding_stage=3"}) {
    const auto programs = lower({job, parse_strategy(text), framework});
    const auto allocated = [&](GradientMemory gradients) {
      framework.memory.gradients = gradients;
      return replay_allocations(programs[0], framework, kUnlimited).allocated;
    };
    const Bytes whole = allocated(GradientMemory::one_buffer);
    if (text[3] == '1') {
      EXPECT_LT(allocated(GradientMemory::by_layer), whole);
    } else {
      EXPECT_EQ(allocated(GradientMemory::by_layer), whole) << text;
    }
  }
}

TEST(GradientMemory, PartsOfTheLossHaveTheirGradientsOneAfterTheOther) {
  Job job = gpt();
  job.precision = DType::bf16;
  const auto programs = lower({job, parse_strategy("dp=1"), framework_by_name("pytorch-fsdp")});
  const auto gradients = [&](LossMemory loss) {
    Framework framework = framework_by_name("pytorch-fsdp");
    framework.memory.loss = loss;
    Bytes bytes;
    for (const Routine& routine : programs[0].routines) {
      TensorNames names;
      for (const TensorStorage& storage : read_events(routine, framework, names).storages)
        if (names[storage.name].starts_with("head.logits.f32.gradient")) bytes += storage.bytes;
    }
    return bytes;
  };
  EXPECT_EQ(gradients(LossMemory::own_type), job.sequence * job.vocab * bytes_of(DType::bf16));
  EXPECT_EQ(kLossParts * gradients(LossMemory::own_type_in_parts), gradients(LossMemory::own_type));
}

}  // namespace
}  // namespace plimsoll
