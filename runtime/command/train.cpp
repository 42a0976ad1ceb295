// Train: one thread per rank, each with its own executor; this thread watches, then sums up.
#include "runtime/command/train.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "models/job/examples.h"
#include "runtime/comm/waited.h"
#include "runtime/command/meeting.h"
#include "runtime/command/rank_record.h"
#include "runtime/communicator.h"
#include "runtime/executor.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// A rank that issues no call for so many deadlines is reported. Building kernels takes longer than
/// a call. A rank in a call gets one deadline more than the ranks that wait for it, whose messages
/// say more.
constexpr int kGetReady = 10, kHang = 2;

/// The state that the rank threads and the watching thread share. Rank threads own a share of it,
/// so that a rank that never comes back cannot reach memory that is gone.
struct Run {
  std::vector<Program> programs;
  std::vector<std::byte> text;
  std::int64_t global_batch = 0, seed = 0;
  bool scales_loss = false;
  Job job;
  std::optional<ExampleRows> examples;  ///< none: sequences are whole
  Bytes workspace;
  TrainOptions options;
  Clock::time_point epoch;
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<std::unique_ptr<Communicator>> communicators;

  std::vector<Heartbeat> heartbeats;  ///< by local rank
  std::unique_ptr<Saver> saver;       ///< null: nothing is saved
  std::optional<LastStep> last_step;

  std::mutex lock;
  std::condition_variable changed;
  std::int64_t ready = 0;     ///< ranks whose executor is built
  std::int64_t finished = 0;  ///< threads that are about to end
  bool stopped = false;       ///< before the last step
  bool failed = false;
  // The first failure that a rank caused itself. The calling thread throws it anew, so that no
  // exception object is shared with a rank that may outlive the call.
  bool environment = false;  ///< an EnvironmentError
  std::string failure;

  // By local rank. A rank writes its own entry, under the lock where the watching thread reads it
  // early.
  std::vector<RankRecord> records;

  /// Ranks of this process: all, or the one that it is.
  std::int64_t locals() const { return std::int64_t(communicators.size()); }
  std::int64_t rank_of(std::int64_t local) const { return records[std::size_t(local)].rank; }
  TrainingText training_text() const {
    TrainingText whole{text, global_batch};
    if (options.held_out) whole.held_out = options.held_out->text;
    if (examples) whole.examples = &*examples;
    return whole;
  }
  const Program& program_of(std::int64_t local) const {
    return programs[class_of(programs, programs[0].grid.coordinates(rank_of(local)))];
  }
  Picoseconds now() const { return time_since(epoch); }

  void fail(const std::exception& error) {
    const std::lock_guard guard(lock);
    if (!failed) {
      environment = exit_code(error) == ExitCode::environment;
      failure =
          dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
    }
    failed = true;
    changed.notify_all();
    if (saver) saver->meeting().fail();
  }

  /// Steps that were made before this run.
  std::int64_t steps_before() const { return options.resume ? options.resume->record().step : 0; }

  /// Ranks take different times to build executors. watch() ends a build that hangs.
  void wait_for_all() {
    std::unique_lock guard(lock);
    if (++ready == locals()) changed.notify_all();
    changed.wait(guard, [&] { return ready == locals() || failed; });
    if (ready != locals()) throw RankFailure("another rank failed before the first step");
  }
};

/// Returns the loss of the text that is held out, where it is due behind a step.
float held_out_loss(const Run& run, Executor& executor, std::int64_t steps) {
  float sum = std::numeric_limits<float>::quiet_NaN();
  const auto& held_out = run.options.held_out;
  if (!held_out) return sum;
  const bool due =
      steps == run.options.steps || (run.steps_before() + steps) % held_out->every == 0;
  if (!due) return sum;
  sum = 0;
  for (std::int64_t batch = 0; batch < held_out->batches; ++batch) sum += executor.evaluate(batch);
  return sum / float(held_out->batches);
}

/// Saves a checkpoint where one is due behind a step, and returns whether that step is the last.
bool end_step(Run& run, std::int64_t local, const Executor& executor, std::int64_t steps) {
  const TrainOptions& options = run.options;
  if (!run.saver) return run.last_step->ends(local, steps);
  Heartbeat& beat = run.heartbeats[std::size_t(local)];
  beat.between_steps = true;
  const bool stops = run.saver->meeting().any(local, options.stop && options.stop());
  const bool last = stops || steps == options.steps;
  const std::int64_t all = run.steps_before() + steps, every = run.saver->every();
  if (last || (every > 0 && all % every == 0)) run.saver->save(local, all, executor);
  ++beat.calls;  // the watchdog counts from here on
  beat.between_steps = false;
  return last;
}

/// Ends the run behind `steps` steps, where rows of experts had no memory in the next one. A
/// checkpoint keeps what these steps trained.
[[noreturn]] void end_at_overflow(Run& run, std::int64_t local, const Executor& executor,
                                  std::int64_t steps) {
  Heartbeat& beat = run.heartbeats[std::size_t(local)];
  beat.between_steps = true;
  const std::int64_t all = run.steps_before() + steps, every = run.saver->every();
  const bool is_saved = steps == 0 || (every > 0 && all % every == 0);
  if (!is_saved) run.saver->save(local, all, executor);
  const auto own = executor.overflow();
  if (!own) throw RankFailure("experts of another rank got more rows than there is memory for");
  throw EnvironmentError(
      steps == 0 ? *own : fmt::format("{}; the checkpoint behind step {} is saved", *own, all));
}

void run_steps(Run& run, std::int64_t local, Executor& executor) {
  const TrainOptions& options = run.options;
  RankRecord& record = run.records[std::size_t(local)];
  executor.reserve_trace(record.trace);
  run.wait_for_all();
  if (options.processes != nullptr) options.processes->barrier(kGetReady * options.deadline);
  Picoseconds begin = run.now();
  for (bool last = false; !last;) {
    const auto made = std::int64_t(record.steps.size());
    const bool traced = made + 1 == options.steps;
    StepResult result = executor.step(run.steps_before() + made, traced ? &record.trace : nullptr);
    if (result.withheld) end_at_overflow(run, local, executor, made);
    if (made == 0 && options.keep_gradients) record.gradients = executor.gradients();
    result.begin = begin;
    result.held_out_loss = held_out_loss(run, executor, made + 1);
    {
      const std::lock_guard guard(run.lock);
      record.steps.push_back(result);
      run.changed.notify_all();
    }
    last = end_step(run, local, executor, made + 1);
    begin = run.saver || options.held_out ? run.now() : result.end;
  }
  if (std::int64_t(record.steps.size()) < options.steps) {
    const std::lock_guard guard(run.lock);
    run.stopped = true;
    return;
  }
  if (const RankDevice* device = run.backends[std::size_t(local)]->device()) {
    record.device_memory = device->memory_used();
  }
  record.traffic = executor.traffic();
  record.flops = executor.flops();
  record.routed = executor.routed();
  if (!options.keep_parameters) return;
  executor.gather_parameters();
  record.parameters = executor.parameters();
}

void run_rank(Run& run, std::int64_t local) {
  Backend& backend = *run.backends[std::size_t(local)];
  Communicator& communicator = *run.communicators[std::size_t(local)];
  const std::int64_t rank = run.rank_of(local);
  backend.enter_thread();
  ExecutorOptions options;
  options.rank = rank;
  options.seed = run.seed;
  options.workspace = run.workspace;
  options.checking = run.options.checking;
  options.epoch = run.epoch;
  options.deadline = run.options.deadline;
  options.replay = run.options.replay;
  options.rates = run.options.rates;
  options.heartbeat = &run.heartbeats[std::size_t(local)];
  const Program& program = run.program_of(local);
  const bool may_overflow =
      run.job.experts && !run.job.experts->drop_overflow && program.grid[Axis::ep] > 1;
  if (run.saver && may_overflow) {
    options.any_overflow = [&](bool own) { return run.saver->meeting().any(local, own); };
  }
  std::unique_ptr<StateReader> state;
  if (run.options.resume) state = run.options.resume->reader();
  options.state = state.get();
  std::unique_ptr<Executor> executor;
  try {
    executor =
        std::make_unique<Executor>(program, backend, communicator, run.training_text(), options);
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(fmt::format("rank {} before the first step: {}", rank, error.what()));
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(fmt::format("rank {} before the first step: out of memory", rank));
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("rank {} failed before the first step: {}", rank, error.what()));
  }
  run_steps(run, local, *executor);
}

void thread_of_rank(const std::shared_ptr<Run>& run, std::int64_t local) {
  try {
    run_rank(*run, local);
  } catch (const RankFailure& failure) {
    // The rank that failed by itself reports; where it is another process, this one does, too.
    if (run->options.processes != nullptr) {
      run->fail(EnvironmentError(fmt::format("rank {} stops, since another failed: {}",
                                             run->rank_of(local), failure.what())));
    }
  } catch (const std::exception& error) {
    run->fail(error);
    run->communicators[std::size_t(local)]->abort(error.what());
  }
  const std::lock_guard guard(run->lock);
  ++run->finished;
  run->changed.notify_all();
}

/// Ranks before this one on its host.
std::int64_t local_rank(std::int64_t rank, const Processes* processes) {
  if (processes == nullptr) return rank;
  const auto& hosts = processes->hosts();
  return std::count(hosts.begin(), hosts.begin() + rank, hosts[std::size_t(rank)]);
}

bool computes_loss(const Program& program) {
  return std::any_of(program.routines.begin(), program.routines.end(), [](const Routine& routine) {
    return std::any_of(routine.ops.begin(), routine.ops.end(),
                       [](const Op& op) { return op.kind == OpKind::token_loss; });
  });
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
  run->job = job;
  if (!job.lengths.empty()) run->examples.emplace(job);
  run->scales_loss = job.loss_scale.has_value();
  run->workspace = framework.memory.process.workspace;
  run->options = options;
  const Grid& grid = programs[0].grid;
  Processes* const processes = options.processes;
  run->epoch = processes != nullptr ? processes->epoch() : Clock::now();
  run->records.resize(processes != nullptr ? 1 : std::size_t(grid.world_size()));
  for (std::size_t local = 0; local < run->records.size(); ++local) {
    RankRecord& record = run->records[local];
    record.rank = processes != nullptr ? processes->index() : std::int64_t(local);
    record.has_loss = computes_loss(run->program_of(std::int64_t(local)));
    record.steps.reserve(std::size_t(options.steps));
    run->backends.push_back(
        options.backend_of_rank
            ? options.backend_of_rank(record.rank)
            : make_backend(options.backend, local_rank(run->records[local].rank, processes)));
  }
  for (std::size_t local = 0; local < run->records.size(); ++local) {
    if (const RankDevice* device = run->backends[local]->device()) {
      run->records[local].device = device->description();
      run->records[local].device_memory_before = device->memory_used();
    }
  }
  run->heartbeats = std::vector<Heartbeat>(run->records.size());
  run->last_step.emplace(options.steps, std::int64_t(run->records.size()), options.stop, processes,
                         options.deadline);
  if (options.save) {
    run->saver = std::make_unique<Saver>(programs, *options.save, run->records[0].rank,
                                         std::int64_t(run->records.size()), run->steps_before(),
                                         processes, kGetReady * options.deadline);
  }
  if (processes != nullptr) {
    run->communicators.push_back(
        processes->make_communicator(programs, options.deadline, run->backends[0]->device()));
  } else {
    std::vector<RankDevice*> devices;
    for (const auto& backend : run->backends) devices.push_back(backend->device());
    run->communicators = make_local_communicators(grid, options.deadline, run->epoch, devices);
  }
  return run;
}

std::vector<std::thread> start_ranks(const std::shared_ptr<Run>& run) {
  std::vector<std::thread> threads;
  threads.reserve(std::size_t(run->locals()));
  try {
    for (std::int64_t local = 0; local < run->locals(); ++local) {
      threads.emplace_back([run, local] { thread_of_rank(run, local); });
    }
  } catch (const std::exception& error) {  // no thread, or no memory for one
    run->fail(EnvironmentError(
        fmt::format("cannot start the thread of rank {}: {}", threads.size(), error.what())));
    const std::lock_guard guard(run->lock);
    run->finished += run->locals() - std::int64_t(threads.size());
  }
  return threads;
}

/// The lowest rank that computes the loss, or 0 where none does.
std::int64_t loss_rank(std::span<const Program> programs) {
  const Grid& grid = programs[0].grid;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    if (computes_loss(programs[class_of(programs, grid.coordinates(rank))])) return rank;
  }
  return 0;
}

/// A Watchdog knows for how long each rank has issued no call. A rank that waits for others fails
/// by its own deadline and names the communication. So a longer silence means that the rank hangs
/// in a kernel, or in building its executor before the first step.
class Watchdog {
 public:
  explicit Watchdog(const Run& run)
      : calls_(run.heartbeats.size(), -1), silent_(run.heartbeats.size()) {}

  /// Returns a report about a rank that is silent for too long, if there is one.
  std::optional<std::string> check(const Run& run) {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Heartbeat& beat = run.heartbeats[i];
      const std::int64_t rank = run.records[i].rank;
      const bool made_all = std::int64_t(run.records[i].steps.size()) == run.options.steps;
      const bool done = !beat.between_steps && (run.stopped || made_all);
      if (const std::int64_t calls = beat.calls.load(); calls != calls_[i] || done) {
        calls_[i] = calls;
        silent_[i] = {};
      }
      const bool waits = calls_[i] == 0 || beat.between_steps;
      const auto limit = run.options.deadline * (waits ? kGetReady : kHang);
      if (silent_[i].so_far() <= limit) continue;
      const double seconds = std::chrono::duration<double>(limit).count();
      if (calls_[i] == 0) {
        return fmt::format(
            "rank {} is not ready for its first step after {} s, {} times the deadline", rank,
            seconds, kGetReady);
      }
      if (waits) {
        return fmt::format(
            "rank {} is not done with the checkpoint behind step {} after {} s, {} times the "
            "deadline",
            rank, beat.step.load() + 1, seconds, kGetReady);
      }
      return fmt::format(
          "rank {} hangs in {}, routine {}: nothing happened for {} s, {} times the deadline", rank,
          step_name(beat.step.load()), beat.routine.load(), seconds, kHang);
    }
    return std::nullopt;
  }

 private:
  std::vector<std::int64_t> calls_;
  std::vector<Waited> silent_;
};

/// After a failure the other ranks get one more deadline to notice it. Returns whether all threads
/// ended.
bool end_within_grace(Run& run) {
  std::unique_lock guard(run.lock);
  const auto grace = std::max(run.options.deadline, std::chrono::milliseconds(1000));
  return wait_within(run.changed, guard, grace, [&] { return run.finished == run.locals(); });
}

/// Reports each step when all ranks of this process have finished it, if the rank that has the loss
/// of the whole batch is here. It ends when all threads are done, or as end_within_grace() says.
bool watch(Run& run) {
  std::unique_lock guard(run.lock);
  std::int64_t reported = 0;
  const bool has_loss =
      run.options.processes == nullptr || run.options.processes->index() == loss_rank(run.programs);
  const auto reportable = [&] {
    return has_loss && run.options.progress && reported < run.options.steps &&
           std::all_of(run.records.begin(), run.records.end(), [&](const RankRecord& record) {
             return std::int64_t(record.steps.size()) > reported;
           });
  };
  const auto all_ended = [&] { return run.finished == run.locals(); };
  constexpr std::chrono::milliseconds kLook{100};
  Watchdog watchdog(run);
  while (!run.failed) {
    run.changed.wait_for(guard, std::min<Clock::duration>(run.options.deadline / 4, kLook),
                         [&] { return run.failed || all_ended() || reportable(); });
    if (const auto hangs = watchdog.check(run); hangs && !run.failed) {
      run.failed = run.environment = true;
      run.failure = *hangs;
      run.changed.notify_all();
      if (run.saver) run.saver->meeting().fail();
    }
    while (!run.failed && reportable()) {
      const RankRecord& record = run.records[loss_record(run.records)];
      const double loss = record.steps[std::size_t(reported)].loss;
      const Seconds time = step_time(run.records, reported);
      const double held_out = record.steps[std::size_t(reported)].held_out_loss;
      guard.unlock();
      run.options.progress(run.steps_before() + reported, loss, time, held_out);
      guard.lock();
      ++reported;
    }
    if (all_ended() && !reportable()) return true;
  }
  guard.unlock();
  return end_within_grace(run);
}

/// As watch(). Where a step cannot be reported, the run fails.
bool watch_or_fail(Run& run) {
  try {
    return watch(run);
  } catch (const std::exception& error) {
    run.fail(error);
  }
  return end_within_grace(run);
}

void rethrow(Run& run) {
  const std::lock_guard guard(run.lock);
  if (!run.failed) return;
  if (run.environment) throw EnvironmentError(run.failure);
  throw std::runtime_error(run.failure);
}

/// Returns the records of all processes, by rank, on process 0, and nothing elsewhere.
std::vector<RankRecord> all_records(Run& run) {
  run.records[0].resident = peak_resident();
  if (run.options.processes == nullptr) return std::move(run.records);
  std::vector<RankRecord> all;
  const auto deadline = kGetReady * run.options.deadline;
  for (const std::string& bytes : run.options.processes->gather(to_bytes(run.records[0]), deadline))
    all.push_back(record_from(bytes));
  return all;
}

}  // namespace

TrainResult train(std::span<const Program> programs, const Job& job, const Framework& framework,
                  std::span<const std::byte> text, const TrainOptions& options) {
  const std::shared_ptr<Run> run = make_run(programs, job, framework, text, options);
  std::vector<std::thread> threads = start_ranks(run);
  const bool ended = watch_or_fail(*run);
  for (std::thread& thread : threads) ended ? thread.join() : thread.detach();
  rethrow(*run);
  TrainResult result;
  result.steps = std::int64_t(run->records[0].steps.size());
  if (run->stopped) return result;
  std::vector<RankRecord> records = all_records(*run);
  if (records.empty()) return result;
  result.measured = measure(records, options.warm_up_steps, run->scales_loss);
  result.measured.experts = measured_experts(programs, job, records);
  result.measured.backend = run->backends[0]->name();
  result.measured.communicator = run->communicators[0]->name();
  result.measured.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  result.measured.host_cpu = cpu_name();
  for (RankRecord& record : records) {
    if (options.keep_gradients) result.gradients.push_back(std::move(record.gradients));
    if (options.keep_parameters) result.parameters.push_back(std::move(record.parameters));
    result.traffic.push_back(std::move(record.traffic));
    result.flops.push_back(record.flops);
  }
  result.measured.traffic = result.traffic;
  return result;
}

}  // namespace plimsoll
