// The memory table: its parts sum to what is allocated, by class and by name, and the checker's
// replay finds what a plan says of its allocator.
#include "predict/stage_memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/file.h"
#include "passes/pipeline.h"
#include "planner/search/search.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

Bytes sum(const BytesByRole& by_role) {
  return std::accumulate(by_role.begin(), by_role.end(), Bytes());
}

Bytes sum(const std::vector<AliveTensors>& alive) {
  Bytes all;
  for (const AliveTensors& one : alive) all += one.bytes;
  return all;
}

std::vector<StageMemory> memory_of(const Framework& framework, const char* text) {
  const Target target(nano_job(), CostModel(small_cluster(), std::nullopt, framework), 2,
                      Bytes(1 << 10));
  const Strategy strategy = parse_strategy(text);
  const Footprint footprint = lay_out(target, strategy, Proof::none);
  std::vector<StageMemory> result;
  for (const Program& program : footprint.programs) {
    result.push_back(memory_at_peak(target, strategy, program, footprint.stages[result.size()]));
  }
  return result;
}

TEST(StageMemory, SumsByClassAndByNameToWhatIsAllocated) {
  for (const char* name :
       {"bundled", "megatron-lm-2021", "pytorch-fsdp", "torchtitan", "paddle-2.2"}) {
    Framework framework = framework_by_name(name);
    framework.memory.process.context = Bytes(1 << 20);
    framework.memory.process.communicator = framework.memory.process.pair_communicator = Bytes();
    for (const StageMemory& memory : memory_of(framework, "pp=2,micro_batch=2")) {
      SCOPED_TRACE(std::string(name) + " " + name_of(memory.stage));
      EXPECT_EQ(sum(memory.by_role), memory.stage.allocated);
      EXPECT_EQ(sum(memory.alive), memory.stage.allocated);
      EXPECT_EQ(memory.filling.taken(), memory.stage.reserved + Bytes(1 << 20));
      for (std::size_t i = 1; i < memory.alive.size(); ++i) {
        EXPECT_GE(memory.alive[i - 1].bytes, memory.alive[i].bytes);
      }
    }
  }
}

TEST(StageMemory, TableSaysWhichPeakIsWhich) {
  const Framework framework = framework_by_name("megatron-lm-2021");
  const auto memory = memory_of(framework, "pp=2");
  const std::string text = describe(memory, framework);
  for (const char* word : {"live peak", "allocated", "reserved", "context and communicators",
                           "optimizer_state", "alive then on stage 0"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
  EXPECT_NE(text.find(memory[0].alive[0].name), std::string::npos) << text;
}

/// A plan for one GPU whose framework has PyTorch's allocator.
Plan planned() {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  const CostModel costs(cluster, std::nullopt, framework_by_name("megatron-lm-2021"));
  SearchRequest request{Target(nano_job(), costs, 2)};
  request.constraints.fixed = {{"pp", "2"}, {"micro_batch", "2"}};
  request.inputs.cluster_digest = digest(cluster_text(cluster));
  return search(request);
}

TEST(CheckAllocators, FindsWhatTheReplayDoesNotGive) {
  Plan plan = planned();
  EXPECT_TRUE(check_allocators(plan).empty());
  plan.prediction.stages[1].allocated += Bytes(512);
  ASSERT_EQ(check_allocators(plan).size(), 1u);
  EXPECT_EQ(check_allocators(plan)[0].rule, kAllocatorPeaks.name);
  plan = planned();
  plan.prediction.stages[0].reserved += Bytes(2 << 20);
  EXPECT_EQ(check_allocators(plan).size(), 1u);
  plan.framework = bundled_framework();
  EXPECT_TRUE(check_allocators(plan).empty());
}

}  // namespace
}  // namespace plimsoll
