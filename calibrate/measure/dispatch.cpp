// Steps of null kernels are timed, and a fit splits their time into ops and calls.
#include "calibrate/measure/dispatch.h"

#include <chrono>
#include <vector>

#include "calibrate/measure/statistics.h"
#include "graph/program.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/pipeline.h"
#include "runtime/backend.h"
#include "runtime/communicator.h"
#include "runtime/executor.h"

namespace plimsoll {
namespace {

Job small_job(std::int64_t layers, std::int64_t global_batch) {
  Job job;
  job.name = "dispatch";
  job.layers = layers;
  job.hidden = 32;
  job.heads = job.kv_heads = 2;
  job.ffn_hidden = 64;
  job.vocab = 256;
  job.sequence = 16;
  job.tied_embeddings = false;
  job.global_batch = global_batch;
  return job;
}

/// A TimedProgram is a Program whose steps are timed, with its numbers of ops and calls.
struct TimedProgram {
  double ops = 0, calls = 0;
  std::vector<Seconds> steps;
};

TimedProgram walk(const Job& job, Recompute recompute, std::int64_t samples) {
  Strategy strategy;
  strategy.recompute = recompute;
  const Framework& framework = bundled_framework();
  const std::vector<Program> programs = lower({job, strategy, framework});
  TimedProgram result;
  for (const Call& call : programs[0].calls) {
    ++result.calls;
    result.ops += double(programs[0].at(call.routine).ops.size());
  }
  const auto backend = make_backend("null");
  ExecutorOptions options;
  options.workspace = framework.memory.process.workspace;
  options.epoch = std::chrono::steady_clock::now();
  const auto communicators =
      make_local_communicators(programs[0].grid, std::chrono::minutes(1), options.epoch);
  const std::vector<std::byte> text(4096);
  Executor executor(programs[0], *backend, *communicators[0], {text, job.global_batch}, options);
  Picoseconds before = executor.step(0).end;
  for (std::int64_t step = 1; step <= samples; ++step) {
    const Picoseconds end = executor.step(step).end;
    result.steps.push_back((end - before).seconds());
    before = end;
  }
  return result;
}

/// Fits a * ops + b * calls to the times, by relative errors. Neither is below zero.
std::pair<double, double> fit(const std::vector<TimedProgram>& walks, std::size_t sample) {
  double oo = 0, oc = 0, cc = 0, ot = 0, ct = 0;
  for (const TimedProgram& walk : walks) {
    const double time = walk.steps[sample].value();
    const double o = walk.ops / time, c = walk.calls / time;
    oo += o * o, oc += o * c, cc += c * c, ot += o, ct += c;
  }
  const double determinant = oo * cc - oc * oc;
  const double per_op = (ot * cc - ct * oc) / determinant;
  const double per_call = (ct * oo - ot * oc) / determinant;
  if (per_call < 0) return {ot / oo, 0};
  if (per_op < 0) return {0, ct / cc};
  return {per_op, per_call};
}

}  // namespace

DispatchCost measure_dispatch(std::int64_t samples) {
  // One layer has few ops per call (embedding, head and optimizer weigh more), many layers and
  // recompute have many.
  std::vector<TimedProgram> walks;
  for (const std::int64_t layers : {1, 8}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      walks.push_back(walk(small_job(layers, 32), recompute, samples));
    }
  }
  std::vector<Seconds> per_op, per_call;
  for (std::size_t i = 0; i < std::size_t(samples); ++i) {
    const auto [op, call] = fit(walks, i);
    per_op.emplace_back(op);
    per_call.emplace_back(call);
  }
  return {summarize(per_op), summarize(per_call)};
}

}  // namespace plimsoll
