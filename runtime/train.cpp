// Train: one thread per rank, each with its own executor; this thread watches, then sums up.
#include "runtime/train.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/communicator.h"
#include "runtime/executor.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// What the rank threads and the watching thread share. Rank threads own a share of it, so that a
/// rank that never comes back cannot reach memory that is gone.
struct Run {
  std::vector<Program> programs;
  std::vector<std::byte> text;
  std::int64_t global_batch = 0, seed = 0;
  bool scales_loss = false;
  Bytes workspace;
  TrainOptions options;
  Clock::time_point epoch;
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<std::unique_ptr<Communicator>> communicators;

  std::vector<Heartbeat> heartbeats;  ///< by rank

  std::mutex lock;
  std::condition_variable changed;
  std::int64_t ready = 0;     ///< ranks whose executor is built
  std::int64_t finished = 0;  ///< threads that are about to end
  bool failed = false;
  // Of the first rank that failed by itself; the calling thread throws it anew, so that no
  // exception object is shared with a rank that may outlive the call.
  bool environment = false;  ///< an EnvironmentError
  std::string failure;
  Picoseconds start;  ///< the instant when all ranks were ready

  // By rank; a rank writes its own entries, under the lock where the watcher reads them early.
  std::vector<std::vector<StepResult>> steps;
  std::vector<Timeline> traces;
  std::vector<std::vector<float>> gradients, parameters;
  std::vector<std::vector<Traffic>> traffic;
  std::vector<PhaseFlops> flops;

  const Program& program_of(std::int64_t rank) const {
    return programs[class_of(programs, programs[0].grid.coordinates(rank))];
  }
  std::int64_t world() const { return std::int64_t(communicators.size()); }

  void fail(const std::exception& error) {
    const std::lock_guard guard(lock);
    if (!failed) {
      environment = dynamic_cast<const EnvironmentError*>(&error) != nullptr;
      failure = error.what();
    }
    failed = true;
    changed.notify_all();
  }

  /// Building executors takes ranks different times; watch() sees to it that it ends.
  void wait_for_all() {
    std::unique_lock guard(lock);
    if (++ready == world()) {
      const auto elapsed = Clock::now() - epoch;
      start = Picoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count() *
                          std::int64_t{1000});
      changed.notify_all();
    }
    changed.wait(guard, [&] { return ready == world() || failed; });
    if (ready != world()) throw RankFailure("another rank failed before the first step");
  }
};

void run_steps(Run& run, std::int64_t rank, Executor& executor) {
  const TrainOptions& options = run.options;
  Timeline& trace = run.traces[std::size_t(rank)];
  executor.reserve_trace(trace);
  run.wait_for_all();
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const StepResult result = executor.step(step, step + 1 == options.steps ? &trace : nullptr);
    if (step == 0 && options.keep_gradients) {
      run.gradients[std::size_t(rank)] = executor.gradients();
    }
    const std::lock_guard guard(run.lock);
    run.steps[std::size_t(rank)].push_back(result);
    run.changed.notify_all();
  }
  run.traffic[std::size_t(rank)] = executor.traffic();
  run.flops[std::size_t(rank)] = executor.flops();
  if (options.keep_parameters) run.parameters[std::size_t(rank)] = executor.parameters();
}

void run_rank(Run& run, std::int64_t rank) {
  Backend& backend = *run.backends[std::size_t(rank)];
  Communicator& communicator = *run.communicators[std::size_t(rank)];
  backend.enter_thread();
  ExecutorOptions options;
  options.rank = rank;
  options.seed = run.seed;
  options.workspace = run.workspace;
  options.checking = run.options.checking;
  options.epoch = run.epoch;
  options.heartbeat = &run.heartbeats[std::size_t(rank)];
  std::unique_ptr<Executor> executor;
  try {
    executor = std::make_unique<Executor>(run.program_of(rank), backend, communicator,
                                          TrainingText{run.text, run.global_batch}, options);
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(fmt::format("rank {} before the first step: {}", rank, error.what()));
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("rank {} failed before the first step: {}", rank, error.what()));
  }
  run_steps(run, rank, *executor);
}

void thread_of_rank(const std::shared_ptr<Run>& run, std::int64_t rank) {
  try {
    run_rank(*run, rank);
  } catch (const RankFailure&) {
    // The rank that failed by itself reports.
  } catch (const std::exception& error) {
    run->fail(error);
    run->communicators[std::size_t(rank)]->abort(error.what());
  }
  const std::lock_guard guard(run->lock);
  ++run->finished;
  run->changed.notify_all();
}

std::shared_ptr<Run> make_run(std::span<const Program> programs, const Job& job,
                              const Framework& framework, std::span<const std::byte> text,
                              const TrainOptions& options) {
  INVARIANT(!programs.empty() && options.steps >= 1, "something to run");
  INVARIANT(
      ranks_per_class(programs) * std::int64_t(programs.size()) == programs[0].grid.world_size(),
      "one Program per class of ranks");
  auto run = std::make_shared<Run>();
  run->programs.assign(programs.begin(), programs.end());
  run->text.assign(text.begin(), text.end());
  run->global_batch = job.global_batch;
  run->seed = job.seed;
  run->scales_loss = job.loss_scale.has_value();
  run->workspace = framework.workspace;
  run->options = options;
  run->epoch = Clock::now();
  const Grid& grid = programs[0].grid;
  const auto world = std::size_t(grid.world_size());
  for (std::size_t rank = 0; rank < world; ++rank) {
    run->backends.push_back(options.backend_of_rank ? options.backend_of_rank(std::int64_t(rank))
                                                    : make_backend(options.backend));
  }
  run->communicators = make_local_communicators(grid, options.deadline, run->epoch);
  run->heartbeats = std::vector<Heartbeat>(world);
  run->steps.resize(world);
  for (auto& steps : run->steps) steps.reserve(std::size_t(options.steps));
  run->traces.resize(world);
  run->gradients.resize(world);
  run->parameters.resize(world);
  run->traffic.resize(world);
  run->flops.resize(world);
  return run;
}

std::vector<std::thread> start_ranks(const std::shared_ptr<Run>& run) {
  std::vector<std::thread> threads;
  try {
    for (std::int64_t rank = 0; rank < run->world(); ++rank) {
      threads.emplace_back([run, rank] { thread_of_rank(run, rank); });
    }
  } catch (const std::system_error& error) {
    run->fail(EnvironmentError(
        fmt::format("cannot start the thread of rank {}: {}", threads.size(), error.what())));
    const std::lock_guard guard(run->lock);
    run->finished += run->world() - std::int64_t(threads.size());
  }
  return threads;
}

/// The lowest rank of the last stage: its loss is that of the whole batch.
std::size_t loss_rank(const Run& run) {
  for (std::int64_t rank = 0; rank < run.world(); ++rank) {
    if (run.program_of(rank).stage == run.programs.back().stage) return std::size_t(rank);
  }
  return 0;
}

/// When the last rank ended a step; before the first, when all were ready.
Picoseconds end_of(const Run& run, std::int64_t step) {
  Picoseconds end = run.start;
  if (step < 0) return end;
  for (const auto& steps : run.steps) end = std::max(end, steps[std::size_t(step)].end);
  return end;
}

/// Since when each rank has issued no call. A rank that waits for others fails by its own deadline
/// and names the communication, so a longer silence means that it hangs in a kernel, or before the
/// first step in building its executor.
class Silence {
  /// Deadlines of silence: building kernels takes longer than a call; a rank in a call gets one
  /// more than those that wait for it, whose messages say more.
  static constexpr int kGetReady = 10, kHang = 2;

 public:
  explicit Silence(const Run& run)
      : calls_(run.heartbeats.size(), -1), since_(run.heartbeats.size()) {}

  /// What to report about the rank that is silent for too long, if one is.
  std::optional<std::string> check(const Run& run) {
    const Clock::time_point now = Clock::now();
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      const Heartbeat& beat = run.heartbeats[rank];
      const bool done = std::int64_t(run.steps[rank].size()) == run.options.steps;
      if (const std::int64_t calls = beat.calls.load(); calls != calls_[rank] || done) {
        calls_[rank] = calls;
        since_[rank] = now;
      }
      const auto limit = run.options.deadline * (calls_[rank] == 0 ? kGetReady : kHang);
      if (now - since_[rank] <= limit) continue;
      const double seconds = std::chrono::duration<double>(limit).count();
      if (calls_[rank] == 0) {
        return fmt::format(
            "rank {} is not ready for its first step after {} s, {} times the deadline", rank,
            seconds, kGetReady);
      }
      return fmt::format(
          "rank {} hangs in step {}, routine {}: nothing happened for {} s, {} times the deadline",
          rank, beat.step.load() + 1, beat.routine.load(), seconds, kHang);
    }
    return std::nullopt;
  }

 private:
  std::vector<std::int64_t> calls_;
  std::vector<Clock::time_point> since_;
};

/// Reports steps as all ranks finish them, until all threads are done. After a failure the others
/// get one more deadline to notice it. Returns whether all threads ended.
bool watch(Run& run) {
  std::unique_lock guard(run.lock);
  std::int64_t reported = 0;
  const auto reportable = [&] {
    return run.options.progress && reported < run.options.steps &&
           std::all_of(run.steps.begin(), run.steps.end(),
                       [&](const auto& steps) { return std::int64_t(steps.size()) > reported; });
  };
  const auto all_ended = [&] { return run.finished == run.world(); };
  Silence silence(run);
  while (!run.failed) {
    run.changed.wait_for(guard, run.options.deadline / 4,
                         [&] { return run.failed || all_ended() || reportable(); });
    if (const auto hangs = silence.check(run); hangs && !run.failed) {
      run.failed = run.environment = true;
      run.failure = *hangs;
      run.changed.notify_all();
    }
    while (!run.failed && reportable()) {
      const double loss = run.steps[loss_rank(run)][std::size_t(reported)].loss;
      const Seconds time = (end_of(run, reported) - end_of(run, reported - 1)).seconds();
      guard.unlock();
      run.options.progress(reported, loss, time);
      guard.lock();
      ++reported;
    }
    if (all_ended() && !reportable()) return true;
  }
  const auto grace = std::max(run.options.deadline, std::chrono::milliseconds(1000));
  return run.changed.wait_for(guard, grace, all_ended);
}

void rethrow(Run& run) {
  const std::lock_guard guard(run.lock);
  if (!run.failed) return;
  if (run.environment) throw EnvironmentError(run.failure);
  throw std::runtime_error(run.failure);
}

Timeline merge(std::vector<Timeline>& traces) {
  Timeline merged;
  Picoseconds first = traces[0].memory[0].curve[0].time;
  for (Timeline& trace : traces) {
    first = std::min(first, trace.memory[0].curve[0].time);
    std::move(trace.intervals.begin(), trace.intervals.end(), std::back_inserter(merged.intervals));
    std::move(trace.memory.begin(), trace.memory.end(), std::back_inserter(merged.memory));
  }
  for (Interval& interval : merged.intervals) {
    interval.posted = interval.posted - first;
    interval.begin = interval.begin - first;
    interval.end = interval.end - first;
  }
  for (RankMemory& memory : merged.memory) {
    for (MemoryPoint& point : memory.curve) point.time = point.time - first;
  }
  sort_intervals(merged);
  return merged;
}

Seconds median(std::vector<Seconds> times) {
  if (times.empty()) return Seconds(0);
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Bytes peak_resident() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return Bytes(std::int64_t{usage.ru_maxrss} * 1024);  // Linux counts in KiB
}

Measured measure(Run& run) {
  Measured measured;
  measured.backend = run.backends[0]->name();
  measured.communicator = run.communicators[0]->name();
  measured.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  measured.host_cpu = cpu_name();
  measured.steps = run.options.steps;
  measured.warm_up_steps = run.options.warm_up_steps;
  for (std::int64_t step = run.options.warm_up_steps; step + 1 < run.options.steps; ++step) {
    measured.step_times.push_back((end_of(run, step) - end_of(run, step - 1)).seconds());
  }
  measured.median_step_time = median(measured.step_times);
  for (const StepResult& step : run.steps[loss_rank(run)]) {
    measured.losses.push_back(step.loss);
    measured.gradient_norms.push_back(step.gradient_norm);
    if (!run.scales_loss) continue;
    measured.loss_scales.push_back(step.loss_scale);
    measured.skipped_steps = step.skipped;
  }
  measured.timeline = merge(run.traces);
  measured.resident = peak_resident();
  return measured;
}

}  // namespace

TrainResult train(std::span<const Program> programs, const Job& job, const Framework& framework,
                  std::span<const std::byte> text, const TrainOptions& options) {
  const std::shared_ptr<Run> run = make_run(programs, job, framework, text, options);
  std::vector<std::thread> threads = start_ranks(run);
  const bool ended = watch(*run);
  for (std::thread& thread : threads) ended ? thread.join() : thread.detach();
  rethrow(*run);
  TrainResult result;
  result.measured = measure(*run);
  result.gradients = std::move(run->gradients);
  result.parameters = std::move(run->parameters);
  result.traffic = std::move(run->traffic);
  result.flops = std::move(run->flops);
  return result;
}

}  // namespace plimsoll
