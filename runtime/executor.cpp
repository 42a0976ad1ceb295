// Executor: walks one rank's Program in host issue order.
#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "passes/layout/plan_memory.h"
#include "runtime/arena.h"
#include "runtime/prepare.h"
#include "runtime/state/arena_values.h"

namespace plimsoll {
namespace {

using Ticket = Communicator::Ticket;
constexpr std::uint32_t kNone = ~std::uint32_t{0};

Program with_layout(const Program& program, bool checking) {
  Program copy = program;
  if (checking) plan_memory(copy, kGuard);
  return copy;
}

/// Whether an op computes the norm of all gradients. None does if backward frees them.
bool computes_norm(const Program& program) {
  return std::ranges::any_of(program.routines, [](const Routine& routine) {
    return std::ranges::any_of(routine.ops, [](const Op& op) {
      return op.kind == OpKind::clip_factor || op.kind == OpKind::square_root;
    });
  });
}

/// Intervals and points of the memory curve whose times a device knows, once it is done.
struct DeviceTimes {
  struct Kernel {
    std::size_t interval;
    std::uint32_t begin, end;  ///< marks
  };
  Picoseconds first;                 ///< when mark 0 was reached
  std::vector<Kernel> kernels;       ///< in the order of their intervals
  std::vector<std::uint32_t> curve;  ///< by point: its mark
};

}  // namespace

struct Executor::State {
  State(const Program& planned, Backend& backend, Communicator& ranks, TrainingText text,
        const ExecutorOptions& settings)
      : options(settings),
        communicator(ranks),
        program(with_layout(planned, settings.checking)),
        device(backend.device()),
        arena(program, settings.checking, device),
        context(make_context(text)),
        needed(needed_bytes(program, context.at, settings.workspace)),
        prepared(prepare_program(program, arena, backend, context)),
        scalars(find_scalars(program, arena, context.at)),
        has_norm(computes_norm(program)),
        tickets(prepared.ops.size(), 0),
        owners(prepared.ops.size(), 0),
        reading(program.buffers.size(), 0) {
    for (const PreparedCall& call : prepared.calls) {
      const auto index = std::uint32_t(&call - prepared.calls.data());
      std::fill_n(owners.begin() + call.first_op, call.routine->ops.size(), index);
    }
    last_on_stream.fill(kNone);
    curve.reserve(prepared.calls.size() + 2);
    for (const BufferId id : prepared.persistent) acquire(id);
    if (options.state != nullptr) {
      load_state(program, arena, context.at, *options.state);
      initialize_frozen(program, arena, context.at, options.seed);
    } else {
      initialize_arena(program, arena, context.at, options.seed);
    }
  }

  RankContext make_context(TrainingText text) {
    RankContext made = {
        &program, program.grid.coordinates(options.rank), text, {}, options.rates, &host_overflow};
    if (const auto id = persistent_of(program, TensorRole::workspace)) {
      made.workspace = {arena.at(*id), std::size_t(options.workspace.count())};
    }
    INVARIANT(made.workspace.size() == std::size_t(options.workspace.count()),
              "the Program has no workspace buffer");
    return made;
  }

  Picoseconds now() const { return time_since(options.epoch); }

  std::string failed_in(std::int64_t step, const char* reason) const {
    return fmt::format("rank {} failed in {}, routine {}: {}", options.rank, step_name(step),
                       routine, reason);
  }

  StepResult run_step(std::int64_t index, Timeline* into);
  float evaluate(std::int64_t batch);
  void gather_parameters();
  const RowOverflow& overflow() const { return device ? device->overflow() : host_overflow; }
  bool withholds_update();
  void issue(const PreparedCall& call);
  void freeze_update(const Op& op);
  void run_sequence(const PreparedCall& call, std::uint32_t first, std::uint32_t end);
  void begin_device_trace();
  void end_device_trace();
  void post(std::uint32_t index);
  void wait(std::uint32_t index);
  void acquire(BufferId id);
  void release(BufferId id);
  void record_memory();
  void record(const PreparedCall& call, const Op& op, const CommunicationTimes& times);
  bool record_rows(const PreparedCall& call, const PreparedOp& op);
  RankMemory memory() const;

  const ExecutorOptions options;
  Communicator& communicator;
  const Program program;
  RankDevice* const device;  ///< null: kernels are over when they return
  Arena arena;
  RowOverflow host_overflow;
  const RankContext context;
  const std::vector<Bytes> needed;  ///< by buffer
  PreparedProgram prepared;
  const std::byte* const scalars;
  const bool has_norm;
  MemoryAccount account;
  Bytes extent;  ///< end of the farthest block acquired so far

  // The number of the step that is running.
  std::vector<Ticket> tickets;        ///< by op; 0: not posted, or waited for
  std::vector<std::uint32_t> owners;  ///< by op: its call
  std::vector<std::int32_t> reading;  ///< by buffer: communications in flight on it
  std::array<std::uint32_t, kStreams> last_on_stream;  ///< its latest communication
  std::int64_t step = 0;
  std::uint64_t runs = 0;  ///< steps that are over, here and of text that is held out
  bool frozen = false;     ///< updates change nothing
  const char* routine = "";
  Timeline* trace = nullptr;
  std::vector<MemoryPoint> curve;
  DeviceTimes device_times;        ///< of the traced step
  std::vector<Traffic> traffic;    ///< of the last traced step
  PhaseFlops flops;                ///< of the same
  std::vector<RoutedRows> routed;  ///< of the same
};

StepResult Executor::State::run_step(std::int64_t index, Timeline* into) {
  step = index;
  trace = into;
  if (trace != nullptr) {
    traffic.clear();
    routed.clear();
    flops = {};
    if (device != nullptr) begin_device_trace();
  }
  last_on_stream.fill(kNone);
  record_memory();
  const bool agrees = options.any_overflow && !frozen;
  std::vector<BufferCopy> kept;
  if (agrees) kept = copy_changed_without_update(program, arena);
  for (const PreparedCall& call : prepared.calls) {
    if (agrees && call.call == prepared.first_update) frozen = withholds_update();
    issue(call);
  }
  for (const std::uint32_t op : prepared.communications) wait(op);
  for (const BufferId id : prepared.last_releases) release(id);
  record_memory();
  if (device != nullptr) device->finish(options.deadline, "the kernels of the step");
  arena.verify_persistent();
  if (trace != nullptr) {
    if (device != nullptr) end_device_trace();
    trace->memory.push_back(memory());
    trace->memory.back().curve = std::exchange(curve, {});
  }
  StepResult result;
  result.end = now();
  ++runs;
  result.withheld = agrees && std::exchange(frozen, false);
  if (!result.withheld && overflow().rows > 0) throw EnvironmentError(to_text(overflow()));
  if (result.withheld) restore(kept, arena);
  if (result.withheld || scalars == nullptr) return result;
  const Scalars values = read_scalars(scalars, device);
  result.loss = values[std::size_t(Scalar::loss)];
  if (has_norm) result.gradient_norm = values[std::size_t(Scalar::gradient_norm)];
  result.loss_scale = values[std::size_t(Scalar::loss_scale)];
  result.skipped = std::int64_t(values[std::size_t(Scalar::skipped)]);
  return result;
}

float Executor::State::evaluate(std::int64_t batch) {
  const std::vector<BufferCopy> kept = copy_changed_without_update(program, arena);
  frozen = true;
  const StepResult result = run_step(-1 - batch, nullptr);
  frozen = false;
  restore(kept, arena);
  return result.loss;
}

bool Executor::State::withholds_update() {
  if (device != nullptr) device->finish(options.deadline, "the kernels before an update");
  return options.any_overflow(overflow().rows > 0);
}

// As after an overflow of gradients: updates leave everything as it is.
void Executor::State::freeze_update(const Op& op) {
  if (!frozen || op.phase != Phase::optimizer || scalars == nullptr) return;
  if (device != nullptr) device->finish(options.deadline, "the kernels before an update");
  Scalars values = read_scalars(scalars, device);
  values[std::size_t(Scalar::found)] = 1;
  change_scalars(program, arena, context.at, values);
}

/// The collectives that complete persistent parameters, wherever in the step they are.
void Executor::State::gather_parameters() {
  trace = nullptr;
  last_on_stream.fill(kNone);
  for (const std::uint32_t index : prepared.communications) {
    const PreparedCall& call = prepared.calls[owners[index]];
    const Op& op = *prepared.ops[index].op;
    const bool gathers = op.kind == OpKind::all_gather || op.kind == OpKind::broadcast;
    const bool whole_step = !call.call->micro_batch && op.phase == Phase::optimizer;
    if (!gathers || !whole_step) continue;
    routine = call.routine->name.c_str();
    post(index);
  }
  for (const std::uint32_t index : prepared.communications) wait(index);
  if (device != nullptr) device->finish(options.deadline, "the last gather of the parameters");
}

void Executor::State::issue(const PreparedCall& call) {
  routine = call.routine->name.c_str();
  if (options.heartbeat != nullptr) {
    options.heartbeat->step.store(step, std::memory_order_relaxed);
    options.heartbeat->routine.store(routine, std::memory_order_relaxed);
    options.heartbeat->calls.fetch_add(1, std::memory_order_relaxed);
  }
  for (const std::uint32_t op : call.waits) wait(op);
  for (const BufferId id : call.releases) release(id);
  for (const BufferId id : call.acquires) acquire(id);
  if (!call.releases.empty() || !call.acquires.empty()) record_memory();
  // Kernels up to the next communication, or wait for one, are one sequence.
  const auto end = call.first_op + std::uint32_t(call.routine->ops.size());
  for (std::uint32_t index = call.first_op; index < end;) {
    for (const std::uint32_t earlier : prepared.ops[index].waits) wait(earlier);
    if (prepared.ops[index].kernel == nullptr) {
      post(index++);
      continue;
    }
    const std::uint32_t first = index++;
    const auto continues = [](const PreparedOp& op) {
      return op.kernel != nullptr && op.waits.empty();
    };
    while (index < end && continues(prepared.ops[index])) ++index;
    run_sequence(call, first, index);
  }
}

void Executor::State::run_sequence(const PreparedCall& call, std::uint32_t first,
                                   std::uint32_t end) {
  const RunPosition position{step, call.call->micro_batch.value_or(0), call.call->layer.value_or(0),
                             call.call->part};
  // A replayed update would not be frozen.
  const bool may_replay = options.replay && trace == nullptr && !frozen;
  if (device != nullptr && !device->begin(first, position, may_replay)) return;
  const bool marks = trace != nullptr && device != nullptr;
  std::uint32_t began = marks ? device->mark() : 0;
  for (std::uint32_t index = first; index < end; ++index) {
    PreparedOp& op = prepared.ops[index];
    freeze_update(*op.op);
    const Picoseconds begin = trace != nullptr ? now() : Picoseconds(0);
    op.kernel->run(op.inputs, op.outputs, position);
    if (trace == nullptr) continue;
    flops[std::size_t(op.op->phase)] += op.kernel->flops();
    const std::uint32_t ended = marks ? device->mark() : 0;
    if (marks) device_times.kernels.push_back({trace->intervals.size(), began, ended});
    record(call, *op.op, {begin, begin, now()});
    // The device idles while the host reads.
    began = record_rows(call, op) && marks ? device->mark() : ended;
  }
  if (device != nullptr) device->end();
}

/// Waits until earlier work is over, so that the host's clock and the device's marks have one
/// instant in common.
void Executor::State::begin_device_trace() {
  device->finish(options.deadline, "the kernels before the traced step");
  device->forget_marks();
  device_times = {};
  device->mark();
  device->finish(options.deadline, "the traced step's first mark");
  device_times.first = now();
}

void Executor::State::end_device_trace() {
  const auto at = [&](std::uint32_t mark) { return device_times.first + device->time_of(mark); };
  for (const DeviceTimes::Kernel& kernel : device_times.kernels) {
    Interval& interval = trace->intervals[kernel.interval];
    interval.posted = interval.begin = at(kernel.begin);
    interval.end = at(kernel.end);
  }
  for (std::size_t i = 0; i < device_times.curve.size(); ++i) {
    curve[i].time = at(device_times.curve[i]);
  }
}

/// Reads what a router's ops have just written. Returns whether there was something to read.
bool Executor::State::record_rows(const PreparedCall& call, const PreparedOp& op) {
  if (!routes_rows(*op.op)) return false;
  const auto index = std::uint64_t(&call - prepared.calls.data());
  if (routed.empty() || routed.back().call != index) routed.push_back({.call = index});
  add_routed(routed.back(), call, op, context.at, device);
  return true;
}

void Executor::State::post(std::uint32_t index) {
  const PreparedOp& op = prepared.ops[index];
  // A stream runs its communications in order; the communicator keeps that without blocking.
  std::uint32_t& last = last_on_stream[std::size_t(op.op->stream)];
  const CommunicationLabel label{step,
                                 routine,
                                 last == kNone ? 0 : tickets[last],
                                 op.op->stream,
                                 runs == 0 || trace != nullptr,
                                 runs * prepared.calls.size() + owners[index] + 1};
  last = index;
  for (const BufferId id : op.buffers) ++reading[id.index()];
  if (trace != nullptr) add(traffic, op.traffic);
  if (const auto* transfer = std::get_if<TransferParams>(&op.op->params)) {
    const Bytes size = bytes_of(op.operand.dtype) * op.operand.elements;
    std::byte* const data = op.operand.whole;
    tickets[index] =
        communicator.post_transfer(op.op->kind, transfer->stage_offset, size, data, label);
    return;
  }
  tickets[index] = communicator.post_collective(
      op.op->kind, std::get<CollectiveParams>(op.op->params), op.operand, label);
}

/// Does nothing when another wait came first: a ticket is waited for once.
void Executor::State::wait(std::uint32_t index) {
  if (tickets[index] == 0) return;
  const CommunicationTimes times = communicator.wait(std::exchange(tickets[index], 0));
  const PreparedOp& op = prepared.ops[index];
  for (const BufferId id : op.buffers) --reading[id.index()];
  if (trace != nullptr) record(prepared.calls[owners[index]], *op.op, times);
}

void Executor::State::acquire(BufferId id) {
  const Buffer& buffer = program.at(id);
  arena.acquire(id);
  if (buffer.on_host) return;
  account.acquire(buffer.role, needed[id.index()]);
  extent = std::max(extent, buffer.offset + round_up(needed[id.index()], kBlockAlignment));
}

void Executor::State::release(BufferId id) {
  const Buffer& buffer = program.at(id);
  if (reading[id.index()] != 0) {
    throw std::runtime_error("buffer " + buffer.name +
                             " is released while a communication still uses it");
  }
  arena.release(id);
  if (!buffer.on_host) account.release(buffer.role, needed[id.index()]);
}

void Executor::State::record_memory() {
  if (trace == nullptr) return;
  curve.push_back({now(), account.by_role()});
  if (device != nullptr) device_times.curve.push_back(device->mark());
}

void Executor::State::record(const PreparedCall& call, const Op& op,
                             const CommunicationTimes& times) {
  Interval& interval = trace->intervals.emplace_back();
  interval.rank = options.rank;
  interval.stream = op.stream;
  interval.kind = op.kind;
  interval.phase = op.phase;
  interval.routine = call.routine->name;
  interval.layer = call.call->layer;
  interval.micro_batch = call.call->micro_batch;
  interval.posted = times.posted;
  interval.begin = times.begin;
  interval.end = times.end;
}

RankMemory Executor::State::memory() const {
  RankMemory counted;
  counted.rank = options.rank;
  counted.peak = account.peak();
  counted.by_role = account.peak_by_role();
  counted.arena = extent;
  return counted;
}

Executor::Executor(const Program& program, Backend& backend, Communicator& communicator,
                   TrainingText text, const ExecutorOptions& options)
    : state_(std::make_unique<State>(program, backend, communicator, text, options)) {}

Executor::~Executor() = default;

void Executor::reserve_trace(Timeline& trace) {
  trace.intervals.reserve(trace.intervals.size() + state_->prepared.ops.size());
  trace.memory.reserve(trace.memory.size() + 1);
  state_->curve.reserve(state_->prepared.calls.size() + 2);
}

template <class Work>
auto Executor::reporting(std::int64_t step, const Work& work) {
  try {
    return work();
  } catch (const RankFailure&) {
    throw;
  } catch (const EnvironmentError& error) {
    state_->communicator.abort(error.what());
    throw;
  } catch (const std::bad_alloc&) {
    const std::string reason = state_->failed_in(step, "out of memory");
    state_->communicator.abort(reason);
    throw EnvironmentError(reason);
  } catch (const std::exception& error) {
    const std::string reason = state_->failed_in(step, error.what());
    state_->communicator.abort(reason);
    throw std::runtime_error(reason);
  }
}

StepResult Executor::step(std::int64_t index, Timeline* trace) {
  return reporting(index, [&] { return state_->run_step(index, trace); });
}

std::optional<std::string> Executor::overflow() const {
  if (state_->overflow().rows == 0) return std::nullopt;
  return to_text(state_->overflow());
}

void Executor::gather_parameters() {
  reporting(state_->step, [&] { state_->gather_parameters(); });
}

float Executor::evaluate(std::int64_t batch) {
  return reporting(state_->step, [&] { return state_->evaluate(batch); });
}

void Executor::save(const WriteShare& share, StateWriter& writer) const {
  save_state(state_->program, state_->arena, state_->context.at, share, writer);
}

Scalars Executor::scalars() const { return read_scalars(state_->scalars, state_->device); }

RankMemory Executor::memory() const { return state_->memory(); }

const std::vector<Traffic>& Executor::traffic() const { return state_->traffic; }

const PhaseFlops& Executor::flops() const { return state_->flops; }

const std::vector<RoutedRows>& Executor::routed() const { return state_->routed; }

std::vector<float> Executor::gradients() const {
  return gradient_values(state_->program, state_->arena);
}

std::vector<float> Executor::parameters() const {
  return parameter_values(state_->program, state_->arena);
}

}  // namespace plimsoll
