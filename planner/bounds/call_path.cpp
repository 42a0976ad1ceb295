// Composes the ops of one call as the simulator does, and reads paths off the map.
#include "planner/bounds/call_path.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/cut/program_builder.h"
#include "simulator/costs/host_dispatch.h"
#include "simulator/engine/routine_map.h"
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
  costed.host_wait =
      to_picoseconds(costs.model().on_host(costs.model().framework().host.waits.time));
  costed.host_executes = costs.model().host_executes();
  costed.host_waits.resize(program.routines.size());
  costed.durations.resize(program.routines.size());
  costed.dispatch.resize(program.routines.size());
  costed.computes.resize(program.routines.size());
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
  }
  return costed;
}

Picoseconds dispatch_of(const CostedProgram& costed, RoutineId routine) {
  const std::vector<Picoseconds>& ops = costed.dispatch[routine.index()];
  if (ops.empty()) return Picoseconds();
  return std::accumulate(ops.begin(), ops.end(), costed.dispatch_call);
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

/// The row of the map with this index, as longest paths.
class PathsTo {
 public:
  PathsTo(const RoutineMap& map, std::size_t index) {
    from_.assign(map.inputs(), kLongAgo);
    std::size_t term = 0, row = 0;
    for (const RoutineMap::Bundle& bundle : map.bundles) {
      for (; row < bundle.row_end; ++row) {
        if (map.rows[row].index != index) continue;
        for (std::size_t t = term; t < bundle.term_end; ++t)
          from_[map.terms[t].input] = map.terms[t].delay + map.rows[row].later;
      }
      term = bundle.term_end;
    }
  }
  Picoseconds from(std::size_t input) const { return from_[input]; }

 private:
  std::vector<Picoseconds> from_;  ///< by input; kLongAgo: the row does not depend on it
};

CallPaths paths_on_host(const CostedProgram& costed, RoutineId id, std::size_t written) {
  const std::vector<Op>& ops = costed.program->at(id).ops;
  CallPaths paths;
  paths.span = costed.dispatch_call;
  std::vector<Picoseconds> ended;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (const std::uint32_t wait : ops[i].waits) paths.span = std::max(paths.span, ended[wait]);
    paths.span += costed.dispatch[id.index()][i];
    ended.push_back(paths.span + costed.durations[id.index()][i]);
    if (!communicates(ops[i].kind)) paths.span = ended.back();
  }
  paths.written = ended[written];
  return paths;
}

}  // namespace

Picoseconds after(Picoseconds time, Picoseconds path) {
  if (time < kHardlyLongAgo || path < kHardlyLongAgo) return kLongAgo;
  return std::min(std::min(time, kLongest) + std::min(path, kLongest), kLongest);
}

CallPaths call_paths(const CostedProgram& costed, RoutineId id, std::size_t written) {
  if (costed.host_executes) return paths_on_host(costed, id, written);
  const Routine& routine = costed.program->at(id);
  std::vector<RoutineOp> ops;
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    ops.push_back({std::uint32_t(op.stream), costed.dispatch[id.index()][i],
                   costed.durations[id.index()][i], op.waits});
    if (costed.host_waits[id.index()][i]) ops.back().host_wait = costed.host_wait;
  }
  ops.front().dispatch += costed.dispatch_call;
  const std::array event_ops = {std::uint32_t(written)};
  const RoutineMap map = compose(ops, event_ops);
  const std::size_t streams = map.streams.size();
  const auto stream = std::size_t(std::ranges::find(map.streams, std::uint32_t(Stream::compute)) -
                                  map.streams.begin());
  const auto from_stream = [&](const PathsTo& to) {
    const Picoseconds awaited =
        begins_elsewhere(routine) ? to.from(RoutineMap::kAwaited) : kLongAgo;
    return stream < streams ? std::max(to.from(RoutineMap::kClocks + stream), awaited) : awaited;
  };
  CallPaths paths;
  paths.written = std::max(Picoseconds(), from_stream(PathsTo(map, streams + 1)));
  paths.host.computes = Picoseconds();
  if (stream < streams) {
    const PathsTo computed(map, stream);
    paths.host.computes = from_stream(computed);
    paths.host.follows = computed.from(RoutineMap::kIssued);
  }
  paths.span = paths.host.computes;
  paths.host.issued = map.dispatch;
  if (map.host_waits) {
    const PathsTo issued(map, streams + 2);
    paths.host.waited = from_stream(issued);
    paths.host.issued = issued.from(RoutineMap::kIssued);
  }
  return paths;
}

HostPaths then(HostPaths first, HostPaths second, std::int64_t count) {
  for (; count > 0; count /= 2) {
    if (count % 2 == 1) first = product(first, second);
    second = product(second, second);
  }
  return first;
}

}  // namespace plimsoll
