// Simulator speed: engine ops and calls per second, and a whole candidate of a search.
#include <benchmark/benchmark.h>

#include <array>

#include "hand_programs.h"
#include "models/job/job.h"
#include "passes/pipeline.h"
#include "simulator/engine/stream_engine.h"
#include "simulator/ranks/build_stream_ranks.h"
#include "simulator/simulate.h"

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

/// A stage of 1F1B that sends both ways over one NIC, with the neighbours' receives: every op that
/// is no kernel shares a link.
void EngineContended(benchmark::State& state) {
  constexpr int kRanks = 16, kMicroBatches = 500;
  StreamEngine engine;
  for (int rank = 0; rank < kRanks; ++rank) {
    engine.add_rank({0, 1, 2, 3, 4});
    const auto transfer = [&](std::uint32_t stream, int peer, int micro_batch,
                              std::vector<StreamEngine::Event> waits) {
      const bool sends = stream <= 2;
      const int from = sends ? rank : peer, to = sends ? peer : rank;
      StreamEngine::Op op{stream, Picoseconds(1), Picoseconds(60)};
      op.rendezvous = std::uint64_t(from * kRanks + to) << 32 | std::uint64_t(micro_batch);
      op.link_use = {sends ? 1u : 2u, Picoseconds(5)};
      return engine.add_op(op, waits);
    };
    for (int i = 0; i < kMicroBatches; ++i) {
      std::vector<StreamEngine::Event> waits;
      if (rank > 0) waits.push_back(transfer(4, rank - 1, i, {}));
      const auto forward = engine.add_op({0, Picoseconds(1), Picoseconds(100)}, waits);
      if (rank + 1 < kRanks) transfer(1, rank + 1, i, {forward});
      if (rank > 0) transfer(2, rank - 1, i, {forward});
      if (rank + 1 < kRanks) transfer(3, rank + 1, i, {});
    }
  }
  const std::vector<Picoseconds> starts(kRanks);
  for (auto _ : state) benchmark::DoNotOptimize(engine.run(starts));
  state.counters["ops/s"] = benchmark::Counter(
      double(state.iterations()) * kMicroBatches * (5 * kRanks - 4), benchmark::Counter::kIsRate);
}
BENCHMARK(EngineContended)->Unit(benchmark::kMillisecond);

std::int64_t ops_of(const std::vector<Program>& programs) {
  std::int64_t ops = 0;
  for (const Program& program : programs) {
    for (const Call& call : program.calls) ops += std::int64_t(program.at(call.routine).ops.size());
  }
  return ops;
}

/// Kernels beside transfers, and transfers beside kernels, take a fifth longer.
Calibration slowed_beside_transfers() {
  Calibration calibration;
  calibration.communicator = CommunicatorKind::nccl;
  calibration.overlaps = {
      {OpKind::matmul, OpKind::send, CommunicatorKind::nccl, 1, Bytes(1'000), 1.2, 1.2, 7, 0, 0}};
  return calibration;
}

/// Megatron 1T, 64 stages of one rank each, 512 micro-batches, every op.
void Step1T(benchmark::State& state) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/megatron-1t.json");
  job.global_batch = 512;
  const Framework framework = framework_by_name("megatron-lm");
  const std::vector<Program> programs =
      lower({job, parse_strategy("pp=64,recompute=full"), framework}, {}, Proof::structure);
  std::optional<Calibration> overlaps;
  if (state.range(2) == 1) overlaps = slowed_beside_transfers();
  const CostModel costs(gpu_cluster(), overlaps, framework);
  const auto folding = state.range(0) == 0 ? Folding::folded : Folding::unfolded;
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(programs, costs, folding, Detail(state.range(1))));
  }
  state.counters["ops"] = double(ops_of(programs));
}
BENCHMARK(Step1T)
    ->ArgNames({"unfolded", "detail", "slowed"})
    ->Args({0, int(Detail::none), 0})
    ->Args({1, int(Detail::none), 0})
    ->Args({1, int(Detail::ops), 0})
    ->Args({0, int(Detail::none), 1})
    ->Args({1, int(Detail::ops), 1})
    ->Unit(benchmark::kMillisecond);

/// The graph that was timed with ASTRA-sim: TP 8 x PP 8 x DP 16, 12 layers in a stage, 8
/// micro-batches, two kernels and two all-reduces per layer each way: 816,128 ops on 1,024 ranks.
void ThousandRanks(benchmark::State& state) {
  HandJob job;
  job.grid.degree[std::size_t(Axis::mp)] = 8;
  job.grid.degree[std::size_t(Axis::pp)] = 8;
  job.grid.degree[std::size_t(Axis::dp)] = 16;
  job.layers = std::vector<std::int64_t>(8, 24);  // halves of layers: a kernel and an all-reduce
  job.micro_batches = 8;
  job.short_backward = true;
  const std::vector<Program> programs = hand_pipeline(job);
  const CostModel costs(gpu_cluster(), std::nullopt, framework_by_name("megatron-lm"));
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(programs, costs, Folding(state.range(0)), Detail::none));
  }
  state.counters["ops"] = double(ops_of(programs)) * 128;
}
BENCHMARK(ThousandRanks)->ArgName("unfolded")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

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

/// LLaMA-3 70B on 64 devices, 8 stages, what its calls cost already known: every class of ranks.
struct KnownCosts {
  explicit KnownCosts(const char* strategy) {
    const Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/llama3-70b.json");
    programs = lower({job, parse_strategy(strategy), framework}, {}, Proof::none);
    expansions = expand(programs, costs);
    topology = resolve_channels(expansions, costs);
    choice = choose_ranks(topology, Folding::folded);
    for (const std::int64_t rank : choice.representatives) {
      const std::size_t expansion = topology.expansion[std::size_t(rank)];
      calls += std::int64_t(expansions[expansion].program->calls.size());
    }
  }
  Framework framework = framework_by_name("megatron-lm");
  CostModel costs{gpu_cluster(), std::nullopt, framework};
  std::vector<Program> programs;
  std::vector<Expansion> expansions;
  RankTopology topology;
  RankChoice choice;
  std::int64_t calls = 0;  ///< of one step, of one rank of each class
};

constexpr std::array kLlamaStrategies = {
    "mp=4,pp=8,sharding_degree=2,sharding_stage=1,sequence_parallel=true",
    "mp=4,pp=8,sharding_degree=2,sharding_stage=1,sequence_parallel=true,virtual_stages=5",
    "mp=8,pp=8,schedule=zb_h1,recompute=full",
};

/// Every call of a step by itself, no cycle replayed; laid out before.
void CallsOneByOne(benchmark::State& state) {
  const KnownCosts known(kLlamaStrategies[std::size_t(state.range(0))]);
  StreamRanks ranks = build_stream_ranks(known.expansions, known.topology, known.choice);
  const std::vector<Picoseconds> starts(known.choice.representatives.size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(ranks.engine.run(starts, StreamEngine::Record::ends));
  }
  state.counters["calls"] = double(known.calls);
  state.SetItemsProcessed(state.iterations() * known.calls);
}
BENCHMARK(CallsOneByOne)->ArgName("strategy")->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);

/// Measures the simulation and the layout of calls.
void CallsLaidOut(benchmark::State& state) {
  const KnownCosts known(kLlamaStrategies[std::size_t(state.range(0))]);
  const std::vector<Picoseconds> starts(known.choice.representatives.size());
  for (auto _ : state) {
    StreamRanks ranks = build_stream_ranks(known.expansions, known.topology, known.choice);
    benchmark::DoNotOptimize(ranks.engine.run(starts, StreamEngine::Record::ends));
  }
  state.counters["calls"] = double(known.calls);
  state.SetItemsProcessed(state.iterations() * known.calls);
}
BENCHMARK(CallsLaidOut)->ArgName("strategy")->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);

/// The whole simulation as a search asks for it: costs, links, all steps; where cycles of calls
/// repeat, a few stand for the rest.
void CallsCovered(benchmark::State& state) {
  const KnownCosts known(kLlamaStrategies[std::size_t(state.range(0))]);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(known.programs, known.costs, Folding::folded, Detail::none));
  }
  state.counters["calls"] = double(known.calls);
  state.SetItemsProcessed(state.iterations() * known.calls);
}
BENCHMARK(CallsCovered)->ArgName("strategy")->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);

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
