// Speed of replaying a step's allocations.
#include <benchmark/benchmark.h>

#include "passes/pipeline.h"
#include "simulator/memory/allocation_replay.h"

namespace plimsoll {
namespace {

/// One stage of Megatron 1T: 64 stages, 512 micro-batches, two layers each.
void MegatronStage(benchmark::State& state) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/megatron-1t.json");
  job.global_batch = 512;
  const Framework framework = framework_by_name("megatron-lm");
  const Strategy strategy = parse_strategy("mp=8,pp=64,micro_batch=1");
  const auto programs = lower({job, strategy, framework}, {}, Proof::none);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        replay_allocations(programs[1], framework, Bytes(std::int64_t{1} << 60)));
  }
}
BENCHMARK(MegatronStage)->Unit(benchmark::kMillisecond);

/// Requests and returns of mixed sizes, 64 alive at a time.
void Blocks(benchmark::State& state, const Allocator& rule) {
  BlockAllocator allocator(rule);
  std::vector<BlockAllocator::Block> alive;
  for (std::int64_t i = 0; i < 64; ++i) alive.push_back(*allocator.take(Bytes(1 << 20)));
  std::uint64_t random = 1;
  for (auto _ : state) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const std::size_t at = std::size_t(random >> 58);
    allocator.give(alive[at]);
    alive[at] = *allocator.take(Bytes(std::int64_t(random >> 40 & 0x3ffffff)));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(Blocks, pytorch, pytorch_allocator());
BENCHMARK_CAPTURE(Blocks, paddle, paddle_allocator());

}  // namespace
}  // namespace plimsoll
