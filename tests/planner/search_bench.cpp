// Search speed: bounds and whole candidates per second, on GPT-3 175B over 1,024 A100.
#include <benchmark/benchmark.h>

#include "planner/bounds/bounds.h"
#include "planner/space/space.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kDevices = 1024;

struct Case {
  Target target = [] {
    Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/gpt3-175b.json");
    job.global_batch = 1536;
    const CostModel costs(
        read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/dgx-a100-80gb.json"),
        std::nullopt, framework_by_name("megatron-lm"));
    return Target(job, costs, kDevices);
  }();
  /// Every k-th legal strategy, so that all parts of the space count alike.
  std::vector<Strategy> strategies(std::size_t most) const {
    const StrategyList legal = enumerate(target.job, target.framework(), kDevices, {}).legal;
    std::vector<Strategy> chosen;
    for (std::size_t i = 0; i < std::min(most, legal.size()); ++i) {
      chosen.push_back(legal[i * legal.size() / std::min(most, legal.size())]);
    }
    return chosen;
  }
};

void rate(benchmark::State& state, const char* name, std::size_t per_iteration) {
  state.counters[name] = benchmark::Counter(double(state.iterations()) * double(per_iteration),
                                            benchmark::Counter::kIsRate);
}

/// A first visit: what bounds remember of strategies alike counts as their work.
template <class Bound>
void bound_evaluations(benchmark::State& state, Bound bound) {
  const Case gpt3;
  const std::vector<Strategy> strategies = gpt3.strategies(512);
  for (auto _ : state) {
    const Bounds bounds(gpt3.target);
    for (const Strategy& strategy : strategies) benchmark::DoNotOptimize(bound(bounds, strategy));
  }
  rate(state, "bounds/s", strategies.size());
}

void Memory(benchmark::State& state) {
  bound_evaluations(state, [](const Bounds& b, const Strategy& s) { return b.memory(s); });
}
void Bottleneck(benchmark::State& state) {
  bound_evaluations(state, [](const Bounds& b, const Strategy& s) { return b.bottleneck(s); });
}
void Actions(benchmark::State& state) {
  bound_evaluations(state, [](const Bounds& b, const Strategy& s) { return b.actions(s); });
}
BENCHMARK(Memory)->Unit(benchmark::kMillisecond);
BENCHMARK(Bottleneck)->Unit(benchmark::kMillisecond);
BENCHMARK(Actions)->Unit(benchmark::kMillisecond);

/// A candidate that no bound cuts: lowered, laid out and simulated.
void Candidates(benchmark::State& state) {
  const Case gpt3;
  const std::vector<Strategy> strategies = gpt3.strategies(32);
  for (auto _ : state) {
    for (const Strategy& strategy : strategies) {
      const Footprint footprint = lay_out(gpt3.target, strategy, Proof::structure);
      benchmark::DoNotOptimize(
          predict(gpt3.target, strategy, footprint, Folding::folded, Detail::none));
    }
  }
  rate(state, "candidates/s", strategies.size());
}
BENCHMARK(Candidates)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll
