// Simulator speed: engine ops and calls per second, and a whole candidate of a search.
#include <benchmark/benchmark.h>

#include "models/job.h"
#include "passes/pipeline.h"
#include "simulator/simulate.h"
#include "simulator/stream_engine.h"

namespace plimsoll {
namespace {

Cluster gpu_cluster() {
  return parse_cluster(R"({"name": "bench", "nodes": null, "devices_per_node": 8,
    "device": {"name": "A100", "kind": "gpu", "memory": "80 GiB", "memory_bandwidth": "2039 GB/s",
               "peak": {"fp32": "312 TFLOP/s", "bf16": "312 TFLOP/s"}},
    "levels": [{"name": "nvlink", "devices": 8, "bandwidth": "300 GB/s", "latency": "3 us"},
               {"name": "ib", "devices": 4194304, "bandwidth": "25 GB/s", "latency": "5 us"}],
    "source": "round numbers"})",
                       "bench");
}

struct Case {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/gpt3-175b.json");
  Strategy strategy = parse_strategy("mp=8,pp=16,dp=8,recompute=full");
  Framework framework = framework_by_name("megatron-lm");
  CostModel costs{gpu_cluster(), std::nullopt, framework};
  std::vector<Program> lowered(Proof proof) const {
    return lower({job, strategy, framework}, {}, proof);
  }
};

std::int64_t calls_of(const std::vector<Program>& programs) {
  std::int64_t calls = 0;
  for (const Program& program : programs) calls += std::int64_t(program.calls.size());
  return calls;
}

/// The engine alone, op by op: a 1F1B-like chain on 16 ranks with a rendezvous every tenth op.
void EngineOps(benchmark::State& state) {
  constexpr int kRanks = 16, kOps = 20'000;
  StreamEngine engine;
  for (int rank = 0; rank < kRanks; ++rank) {
    engine.add_rank({0, 1});
    StreamEngine::Event last = 0;
    for (int i = 0; i < kOps; ++i) {
      const bool meets = i % 10 == 9;
      StreamEngine::Op op{meets ? 1u : 0u, Picoseconds(1), Picoseconds(100 + i % 7), {}};
      if (meets) op.rendezvous = std::uint64_t(i);
      std::vector<StreamEngine::Event> waits;
      if (i > 0 && i % 10 != 5) waits.push_back(last);
      last = engine.add_op(op, waits);
    }
  }
  const std::vector<Picoseconds> starts(kRanks);
  for (auto _ : state) benchmark::DoNotOptimize(engine.run(starts));
  state.counters["ops/s"] =
      benchmark::Counter(double(state.iterations()) * kRanks * kOps, benchmark::Counter::kIsRate);
}
BENCHMARK(EngineOps)->Unit(benchmark::kMillisecond);

void Simulate(benchmark::State& state) {
  const Case gpt3;
  const std::vector<Program> programs = gpt3.lowered(Proof::structure);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        simulate(programs, gpt3.costs, Folding::folded, Detail(state.range(0))));
  }
  state.counters["calls/s"] = benchmark::Counter(double(state.iterations() * calls_of(programs)),
                                                 benchmark::Counter::kIsRate);
}
BENCHMARK(Simulate)
    ->ArgName("detail")
    ->Arg(int(Detail::none))
    ->Arg(int(Detail::critical))
    ->Arg(int(Detail::calls))
    ->Arg(int(Detail::ops))
    ->Unit(benchmark::kMillisecond);

void Lower(benchmark::State& state) {
  const Case gpt3;
  std::int64_t calls = 0;
  for (auto _ : state) calls = calls_of(gpt3.lowered(Proof(state.range(0))));
  state.counters["calls/s"] =
      benchmark::Counter(double(state.iterations() * calls), benchmark::Counter::kIsRate);
}
BENCHMARK(Lower)
    ->ArgName("proof")
    ->Arg(int(Proof::none))
    ->Arg(int(Proof::structure))
    ->Arg(int(Proof::order))
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll
