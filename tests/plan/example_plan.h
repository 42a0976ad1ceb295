// A hand-written plan and a measurement of it, for tests of files and reports: gpt-nano's shape on
// two stages of two replicas. Its numbers are simple, not simulated; example_plan() does not claim
// to pass the checker.
#pragma once

#include <algorithm>

#include "base/file.h"
#include "passes/pipeline.h"
#include "plan/measured.h"
#include "plan/plan.h"

namespace plimsoll {

inline BytesByRole example_bytes(std::int64_t stage, std::int64_t saved_bundles) {
  BytesByRole bytes = {};
  bytes[std::size_t(TensorRole::parameter)] = Bytes(262'144 + 65'536 * stage);
  bytes[std::size_t(TensorRole::gradient)] = Bytes(262'144 + 65'536 * stage);
  bytes[std::size_t(TensorRole::optimizer_state)] = Bytes(524'288 + 131'072 * stage);
  bytes[std::size_t(TensorRole::activation)] = Bytes(98'304);
  bytes[std::size_t(TensorRole::saved)] = Bytes(196'608 * saved_bundles);
  bytes[std::size_t(TensorRole::communication)] = Bytes(32'768);
  bytes[std::size_t(TensorRole::scalar)] = Bytes(64);
  return bytes;
}

inline Bytes example_total(const BytesByRole& bytes) {
  Bytes total;
  for (Bytes part : bytes) total += part;
  return total;
}

/// Two micro-batches through one rank of a stage: forward 2 ms, backward 4 ms, optimizer 1 ms,
/// every phase as two ops; stage 1 works one forward later. Times are scaled by `slowness` / 100.
inline void append_example_rank(Timeline& timeline, std::int64_t rank, std::int64_t stage,
                                std::int64_t slowness) {
  const auto at = [&](double milliseconds) {
    return Picoseconds(static_cast<std::int64_t>(milliseconds * 1e7) * slowness);
  };
  RankMemory memory;
  memory.rank = rank;
  const auto point = [&](double time, std::int64_t bundles) {
    memory.curve.push_back({at(time), example_bytes(stage, bundles)});
  };
  const auto work = [&](double begin, double end, Phase phase, std::int64_t micro_batch) {
    const std::string routine = "layer." + std::string(to_text(phase));
    const double middle = begin + 0.75 * (end - begin);
    const auto layer = 2 * stage;
    timeline.intervals.push_back({rank, Stream::compute, OpKind::matmul, phase, routine, layer,
                                  micro_batch, at(begin), at(begin), at(middle)});
    timeline.intervals.push_back({rank, Stream::compute, OpKind::gelu, phase, routine, layer,
                                  micro_batch, at(middle), at(middle), at(end)});
  };
  const auto transfer = [&](Stream stream, OpKind kind, Phase phase, double posted, double begin,
                            double end, std::int64_t micro_batch) {
    timeline.intervals.push_back({rank, stream, kind, phase, std::string(to_text(kind)),
                                  std::nullopt, micro_batch, at(posted), at(begin), at(end)});
  };
  if (stage == 0) {
    work(0, 2, Phase::forward, 0);
    transfer(Stream::send_next, OpKind::send, Phase::forward, 2, 2, 2.2, 0);
    work(2, 4, Phase::forward, 1);
    transfer(Stream::send_next, OpKind::send, Phase::forward, 4, 8.5, 8.7, 1);
    transfer(Stream::recv_next, OpKind::recv, Phase::backward, 4, 8.3, 8.5, 0);
    work(8.5, 12.5, Phase::backward, 0);
    transfer(Stream::recv_next, OpKind::recv, Phase::backward, 12.5, 14.8, 15, 1);
    work(15, 19, Phase::backward, 1);
  } else {
    transfer(Stream::recv_previous, OpKind::recv, Phase::forward, 0, 2, 2.2, 0);
    work(2.2, 4.2, Phase::forward, 0);
    work(4.2, 8.2, Phase::backward, 0);
    transfer(Stream::send_previous, OpKind::send, Phase::backward, 8.2, 8.3, 8.5, 0);
    transfer(Stream::recv_previous, OpKind::recv, Phase::forward, 8.2, 8.5, 8.7, 1);
    work(8.7, 10.7, Phase::forward, 1);
    work(10.7, 14.7, Phase::backward, 1);
    transfer(Stream::send_previous, OpKind::send, Phase::backward, 14.7, 14.8, 15, 1);
  }
  const double reduce = stage == 0 ? 19 : 14.7;
  transfer(Stream::data, OpKind::all_reduce, Phase::backward, reduce, reduce, reduce + 1, 1);
  work(20, 21, Phase::optimizer, 0);
  point(0, 0);
  if (stage == 0) {
    point(0.5, 1), point(2.5, 2), point(12.5, 1), point(19, 0);
  } else {
    point(2.2, 1), point(8.2, 0), point(8.7, 1), point(14.7, 0);
  }
  point(21, 0);
  memory.by_role = example_bytes(stage, stage == 0 ? 2 : 1);
  memory.peak = example_total(memory.by_role);
  memory.arena = memory.peak + Bytes(4096);
  timeline.memory.push_back(std::move(memory));
}

inline Job example_job() {
  Job job;
  job.name = "gpt-nano";
  job.layers = 4;
  job.hidden = 64;
  job.heads = job.kv_heads = 4;
  job.ffn_hidden = 256;
  job.vocab = 256;
  job.sequence = 32;
  job.tied_embeddings = false;
  job.global_batch = 16;
  job.optimizer.learning_rate = 1e-3;
  job.seed = 1;
  return job;
}

inline RunnerUp example_runner_up() {
  RunnerUp runner_up;
  runner_up.strategy.dp = 4;
  runner_up.strategy.micro_batch = 4;
  runner_up.step_time = Seconds(0.0245);
  runner_up.ratio = {1.1, 1.25, false};
  runner_up.peak = Bytes(3'000'000);
  runner_up.taken = Bytes(3'100'000);
  runner_up.term = LossTerm::optimizer;
  runner_up.term_time = Seconds(0.0021);
  return runner_up;
}

inline Prediction example_prediction() {
  Prediction prediction;
  prediction.step_time = Seconds(0.021);
  prediction.step_time_low = Seconds(0.019);
  prediction.step_time_high = Seconds(0.023);
  prediction.tokens_per_second = 512 / 0.021;
  prediction.mfu = 0.25;
  prediction.hfu = 0.25;
  prediction.peak_flops = FlopsPerSecond(1e11);
  prediction.peak_source = "one core f32, measured for a test";
  prediction.breakdown = {Seconds(0.004), Seconds(0),      Seconds(0.008), Seconds(0.001),
                          Seconds(0.001), Seconds(0.0065), Seconds(0.0005)};
  prediction.worst = Provenance::interpolated;
  prediction.share_by_provenance = {0.75, 0.25};
  for (std::int64_t stage : {0, 1}) {
    const BytesByRole by_role = example_bytes(stage, stage == 0 ? 2 : 1);
    const Bytes peak = example_total(by_role);
    const Bytes arena = peak + Bytes(4096);
    prediction.stages.push_back(
        {stage, peak, by_role, arena, Bytes(4'000'000'000), {}, peak, arena});
  }
  prediction.memory = {Bytes(3'000'000), Bytes(2'900'000), Bytes(3'100'000), 0.125,
                       MemoryVerdict::tight};
  return prediction;
}

inline Plan example_plan() {
  Plan plan;
  plan.job = example_job();
  plan.framework = bundled_framework();
  plan.framework.kernels.attention.flash = true;  // no preset: fields must not be read off the name
  plan.framework.memory.process.workspace = Bytes(65'536);
  plan.framework.memory.process.communicator = Bytes(12'345);
  plan.framework.sources.dispatch = "written for a test";
  plan.strategy.pp = 2;
  plan.strategy.dp = 2;
  plan.strategy.micro_batch = 4;
  plan.devices = 4;
  plan.cluster_name = "four cores";
  plan.cluster_digest = digest("cluster");
  plan.device_kind = DeviceKind::cpu_core;
  plan.stated_vocabulary = 250;
  plan.reserve = Bytes(1 << 20);
  plan.origin.command = "planner plan gpt-nano.json --cluster 'four cores.json' --devices 4";
  plan.origin.calibration_provenance = "no calibration, datasheet rates";
  plan.origin.interval_basis = "what the costs of its ops leave open";
  plan.prediction = example_prediction();
  plan.program_digests = {digest("stage 0"), digest("stage 1")};
  plan.search.space = 12;
  plan.search.evaluated = 4;
  plan.search.infeasible = 1;
  plan.search.bounded[std::size_t(Cut::lasting_bytes)] = 2;
  plan.search.pruned = {{"mp must divide heads", 6}};
  plan.search.proven = true;
  plan.pareto = {{plan.strategy,
                  plan.prediction.step_time,
                  {},
                  plan.prediction.stages[0].peak,
                  plan.prediction.stages[0].reserved + Bytes(12'345),
                  {}},
                 {plan.strategy,
                  plan.prediction.step_time * 1.25,
                  {1.2, 1.3, false},
                  Bytes(500'000),
                  Bytes(600'000),
                  {UnusualChoice::odd_micro_batch}}};
  plan.pareto[1].strategy.micro_batch = 1;
  plan.runners_up = {example_runner_up()};
  plan.unusual = {UnusualChoice::many_virtual_stages};
  FastestPlan fastest;
  fastest.strategy = plan.strategy;
  fastest.strategy.micro_batch = 2;
  fastest.step_time = plan.prediction.step_time * 0.99;
  fastest.ratio = {0.97, 1.01, true};
  fastest.peak = Bytes(3'500'000);
  fastest.taken = Bytes(3'600'000);
  fastest.gain = 0.01;
  fastest.unusual = {UnusualChoice::tight_memory};
  plan.fastest = fastest;
  append_example_rank(plan.timeline, 0, 0, 100);
  append_example_rank(plan.timeline, 2, 1, 100);
  sort_intervals(plan.timeline);
  return plan;
}

/// The bytes that each rank of the plan sends in a step.
inline std::vector<std::vector<Traffic>> example_traffic(const Plan& plan) {
  const auto programs = lower({plan.job, plan.strategy, plan.framework}, {}, Proof::none);
  const Grid& grid = programs[0].grid;
  std::vector<std::vector<Traffic>> traffic;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    traffic.push_back(step_traffic(programs[class_of(programs, grid.coordinates(rank))], rank));
  }
  return traffic;
}

/// All four ranks, a twentieth slower than predicted; bytes as predicted.
inline Measured example_measured(const Plan& plan) {
  Measured measured;
  measured.plan_digest = digest(plan_text(plan));
  measured.backend = "cpu";
  measured.communicator = "local";
  measured.date = "2026-11-20";
  measured.host_cpu = "a processor";
  measured.steps = 6;
  measured.warm_up_steps = 2;
  measured.step_times = {Seconds(0.0221), Seconds(0.022), Seconds(0.0224)};
  measured.median_step_time = Seconds(0.0221);
  measured.losses = {5.6, 5.1, 4.7, 4.4, 4.2, 4.1};
  measured.gradient_norms = {2.0, 1.8, 1.5, 1.3, 1.2, 1.1};
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    append_example_rank(measured.timeline, rank, rank / 2, 105);
  }
  sort_intervals(measured.timeline);
  measured.resident = Bytes(50'000'000);
  measured.traffic = example_traffic(plan);
  return measured;
}

}  // namespace plimsoll
