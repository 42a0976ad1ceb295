// Follows the paths from each source by itself, since longest paths add up along the way
// (max-plus).
#include "planner/bounds/step_tail.h"

#include <algorithm>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// Returns kLongAgo, which means no path, for times that are still from long ago.
Picoseconds path_or_none(Picoseconds time) {
  return time < kHardlyLongAgo ? kLongAgo : std::max(time, Picoseconds());
}

/// Returns the ops of a routine that ranks of several stages take part in.
std::vector<std::size_t> meetings_of(const Routine& routine) {
  std::vector<std::size_t> ops;
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    if (crosses_stages(routine.ops[i])) ops.push_back(i);
  }
  return ops;
}

/// The parts of a Program, which the calls of blocks divide.
struct Parts {
  std::size_t first_forward = 0, last_action = 0;
};

Parts parts_of(const Program& program, std::int64_t last_calls) {
  Parts parts;
  while (!program.calls[parts.first_forward].micro_batch) ++parts.first_forward;
  parts.last_action = program.calls.size();
  for (std::int64_t left = last_calls; left > 0;) {
    const Call& call = program.calls[--parts.last_action];
    if (call.layer && call.micro_batch) --left;
  }
  return parts;
}

/// Runs the tail with `source` at time 0 and every other source at kLongAgo.
void follow(const CostedProgram& costed, std::size_t first, std::size_t source, StepTail& tail) {
  const Program& program = *costed.program;
  CallPath path(costed, source == 0 ? Picoseconds() : kLongAgo, kLongAgo);
  std::size_t meeting = 0;  // the first one of a call
  for (std::size_t call = first; call < program.calls.size(); ++call) {
    const std::size_t count = meetings_of(program.at(program.calls[call].routine)).size();
    if (source > meeting && source <= meeting + count) {
      path.stages_meet_until(source - meeting - 1, Picoseconds());
    }
    path.run(call);
    for (std::size_t i = 0; i < count; ++i) {
      tail.meetings[meeting + i].posted.push_back(path_or_none(path.posted()[i]));
    }
    meeting += count;
  }
  tail.ends.push_back(path_or_none(path.everything_ended()));
}

}  // namespace

StepTail step_tail(const Program& program, std::int64_t last_calls, const LeastCosts& costs) {
  const CostedProgram costed = cost_of(program, costs);
  const Parts parts = parts_of(program, last_calls);
  StepTail tail;
  CallPath begin(costed, Picoseconds(), Picoseconds());
  for (std::size_t call = 0; call < parts.first_forward; ++call) {
    begin.run(call);
    tail.begins_dispatch += dispatch_of(costed, program.calls[call].routine);
  }
  tail.begins = begin.now();
  for (std::size_t call = parts.last_action; call < program.calls.size(); ++call) {
    const RoutineId id = program.calls[call].routine;
    const Routine& routine = program.at(id);
    tail.dispatch += dispatch_of(costed, id);
    for (std::size_t i : meetings_of(routine)) {
      const auto& group = std::get<CollectiveParams>(routine.ops[i].params).group;
      tail.meetings.push_back({group.pipeline_ends > 0, costed.durations[id.index()][i], {}});
    }
  }
  for (std::size_t source = 0; source <= tail.meetings.size(); ++source) {
    follow(costed, parts.last_action, source, tail);
  }
  return tail;
}

Picoseconds latest(const PathsFrom& paths, const std::vector<Picoseconds>& sources) {
  Picoseconds time = kLongAgo;
  for (std::size_t i = 0; i < paths.size() && i < sources.size(); ++i) {
    if (paths[i] > kLongAgo && sources[i] > kLongAgo) time = std::max(time, sources[i] + paths[i]);
  }
  return time;
}

}  // namespace plimsoll
