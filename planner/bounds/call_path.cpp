// Runs calls by the rules of the simulator, with one rank alone.
#include "planner/bounds/call_path.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/op_table.h"
#include "simulator/costs/host_dispatch.h"
#include "simulator/ranks/expand.h"

namespace plimsoll {

Picoseconds repeated(Picoseconds one, std::int64_t count) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(one.count(), count, &product)) {
    throw InfeasibleError("a step would take longer than the clock can hold");
  }
  return Picoseconds(product);
}

CostedProgram cost_of(const Program& program, const LeastCosts& costs) {
  CostedProgram costed;
  costed.program = &program;
  costed.dispatch_call = costs.model().dispatch_call();
  costed.host_wait = to_picoseconds(costs.model().on_host(costs.model().framework().host_wait));
  costed.host_executes = costs.model().host_executes();
  costed.host_waits.resize(program.routines.size());
  costed.durations.resize(program.routines.size());
  costed.dispatch.resize(program.routines.size());
  costed.computes.resize(program.routines.size());
  costed.slowdown.resize(program.routines.size());
  for (const Call& call : program.calls) {
    const std::size_t r = call.routine.index();
    std::vector<Picoseconds>& durations = costed.durations[r];
    if (!durations.empty()) continue;
    const Routine& routine = program.at(call.routine);
    durations = costs.of(routine, program.grid, program.stage);
    costed.dispatch[r] = host_dispatch(program, routine, costs.model());
    costed.host_waits[r] = host_waits(routine, costs.model());
    for (std::size_t i = 0; i < routine.ops.size(); ++i) {
      const Op& op = routine.ops[i];
      if (op.stream != Stream::compute || communicates(op.kind)) continue;
      costed.computes[r] += durations[i];
    }
    if (routine.ops.size() == 1 && communicates(routine.ops[0].kind))
      costed.slowdown[r] = costs.slowdown(routine, program.grid, program.stage);
  }
  return costed;
}

Picoseconds dispatch_of(const CostedProgram& costed, RoutineId routine) {
  const std::vector<Picoseconds>& ops = costed.dispatch[routine.index()];
  if (ops.empty()) return Picoseconds();
  return std::accumulate(ops.begin(), ops.end(), costed.dispatch_call);
}

bool crosses_stages(const Op& op) {
  const auto* collective = std::get_if<CollectiveParams>(&op.params);
  if (collective == nullptr || !communicates(op.kind)) return false;
  return collective->group.axes.has(Axis::pp);
}

CallPath::CallPath(const CostedProgram& costed, Picoseconds now, Picoseconds issued)
    : costed_(costed), issued_(issued) {
  clocks_.fill(kLongAgo);
  clocks_[std::size_t(Stream::compute)] = now;
}

Picoseconds CallPath::awaited(const Call& call) const {
  Picoseconds latest = kLongAgo;
  for (const Wait& wait : call.waits) {
    const auto found = calls_.find(wait.call);
    if (found == calls_.end()) continue;
    const Times& times = found->second;
    if (wait.port && !times.ops.empty()) {
      const Routine& routine = costed_.program->at(costed_.program->calls[wait.call].routine);
      latest = std::max(latest, times.ops[routine.ports.at(*wait.port).op]);
    } else {
      latest = std::max(latest, times.all);
    }
  }
  return latest;
}

/// Returns when an op ends that is `ready` once all it waits for has ended. Advances the clock that
/// runs the op.
Picoseconds CallPath::end_of_op(const Op& op, Picoseconds ready, Picoseconds dispatch,
                                Picoseconds duration) {
  Picoseconds& stream = clocks_[std::size_t(op.stream)];
  Picoseconds& host = clocks_[std::size_t(Stream::compute)];
  const bool communication = communicates(op.kind);
  Picoseconds begin;
  if (costed_.host_executes) {
    host = std::max(host, ready) + dispatch;
    begin = host;
    if (communication && op.stream != Stream::compute) begin = std::max(begin, stream);
  } else {
    begin = std::max({stream, ready, issued_});
  }
  Picoseconds end = begin + duration;
  if (crosses_stages(op)) {
    if (floor_ && floor_->first == posted_.size()) end = std::max(end, floor_->second);
    posted_.push_back(begin);
  }
  if (!costed_.host_executes || !communication) {
    (costed_.host_executes ? host : stream) = end;
  } else if (op.stream != Stream::compute) {
    stream = end;
  }
  return end;
}

/// Delays the kernels of a call by communications before it that nothing has waited for
/// (StreamRanks::add_delays does the same).
void CallPath::delay(std::size_t index) {
  const Call& call = costed_.program->calls[index];
  const std::size_t r = call.routine.index();
  if (const double slowdown = costed_.slowdown[r]; slowdown > 0) {
    const Stream stream = costed_.program->at(call.routine).ops[0].stream;
    delays_.communicate(stream, index, costed_.durations[r][0], {slowdown, 1});
  } else if (costed_.computes[r] > Picoseconds()) {
    for (const Wait& wait : call.waits) {
      const RoutineId awaited = costed_.program->calls[wait.call].routine;
      if (costed_.slowdown[awaited.index()] > 0)
        delays_.wait_for(costed_.program->at(awaited).ops[0].stream, wait.call);
    }
    clocks_[std::size_t(Stream::compute)] += delays_.compute(costed_.computes[r]);
  }
}

/// Lets the host wait for the op before, if the framework has it wait.
void CallPath::wait_on_host() {
  if (const auto until = std::exchange(host_waits_until_, std::nullopt))
    issued_ = std::max(issued_, *until) + costed_.host_wait;
}

Picoseconds CallPath::issued() {
  wait_on_host();
  return issued_;
}

void CallPath::run(std::size_t index, Picoseconds others) {
  const Call& call = costed_.program->calls[index];
  const Routine& routine = costed_.program->at(call.routine);
  const std::vector<Picoseconds>& durations = costed_.durations[call.routine.index()];
  const std::vector<Picoseconds>& dispatch = costed_.dispatch[call.routine.index()];
  const std::vector<bool>& waits = costed_.host_waits[call.routine.index()];
  const Picoseconds call_ready = std::max(awaited(call), others);
  std::array<bool, kStreams> entered = {};
  Times times;
  posted_.clear();
  if (costed_.host_executes) {
    clocks_[std::size_t(Stream::compute)] += costed_.dispatch_call;
  } else {
    wait_on_host();
    issued_ += costed_.dispatch_call;
    delay(index);
  }
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    wait_on_host();
    issued_ += dispatch[i];
    Picoseconds ready = kLongAgo;
    if (!std::exchange(entered[std::size_t(op.stream)], true)) ready = call_ready;
    for (std::uint32_t wait : op.waits) ready = std::max(ready, times.ops[wait]);
    const Picoseconds end = end_of_op(op, ready, dispatch[i], durations[i]);
    if (waits[i]) host_waits_until_ = end;
    times.ops.push_back(end);
    times.all = std::max(times.all, end);
  }
  ended_ = std::max(ended_, times.all);
  floor_.reset();
  calls_[index] = std::move(times);
}

Picoseconds CallPath::everything_ended() const {
  const Picoseconds host = costed_.host_executes ? now() : issued_;
  return std::max(ended_, host);
}

namespace {

constexpr Picoseconds kLongest{std::int64_t{1} << 60};

HostPaths product(const HostPaths& first, const HostPaths& second) {
  const auto through = [](Picoseconds to_stream, Picoseconds on, Picoseconds to_host,
                          Picoseconds from_host) {
    return std::max(after(to_stream, on), after(to_host, from_host));
  };
  return {through(first.computes, second.computes, first.waited, second.follows),
          through(first.computes, second.waited, first.waited, second.issued),
          through(first.follows, second.computes, first.issued, second.follows),
          through(first.follows, second.waited, first.issued, second.issued)};
}

}  // namespace

Picoseconds after(Picoseconds time, Picoseconds path) {
  if (time < kHardlyLongAgo || path < kHardlyLongAgo) return kLongAgo;
  return std::min(std::min(time, kLongest) + std::min(path, kLongest), kLongest);
}

HostPaths host_paths(const CostedProgram& costed, std::size_t call, CallPath& stream) {
  CallPath host(costed, kLongAgo, Picoseconds());
  host.run(call);
  const auto path = [](Picoseconds time) { return after(Picoseconds(), time); };
  return {path(stream.now()), path(stream.issued()), path(host.now()), path(host.issued())};
}

HostPaths then(HostPaths first, HostPaths second, std::int64_t count) {
  for (; count > 0; count /= 2) {
    if (count % 2 == 1) first = product(first, second);
    second = product(second, second);
  }
  return first;
}

}  // namespace plimsoll
