// Longest paths add up along the way (max-plus), so each source is followed by itself.
#include "planner/step_tail.h"

#include <algorithm>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

constexpr Picoseconds kHardlyLongAgo{-(std::int64_t{1} << 59)};

/// No path where a time is still from long ago.
Picoseconds path_or_none(Picoseconds time) {
  return time < kHardlyLongAgo ? kLongAgo : std::max(time, Picoseconds());
}

bool computes(const Routine& routine) {
  return std::any_of(routine.ops.begin(), routine.ops.end(),
                     [](const Op& op) { return !communicates(op.kind); });
}

const Op* meeting_of(const Routine& routine) {
  const auto found = std::find_if(routine.ops.begin(), routine.ops.end(), crosses_stages);
  return found == routine.ops.end() ? nullptr : &*found;
}

/// The parts of a Program of one micro-batch.
struct Parts {
  std::size_t first_forward = 0, first_backward = 0;
};

Parts parts_of(const Program& program) {
  Parts parts;
  const auto is_at = [&](std::size_t call, Phase phase) {
    const Routine& routine = program.at(program.calls[call].routine);
    return program.calls[call].micro_batch && routine.phase == phase && computes(routine);
  };
  while (!program.calls[parts.first_forward].micro_batch) ++parts.first_forward;
  while (!is_at(parts.first_backward, Phase::backward)) ++parts.first_backward;
  return parts;
}

/// Runs the tail with `source` at time 0 and every other source long ago.
void follow(const CostedProgram& costed, std::size_t first, std::size_t source, StepTail& tail) {
  const Program& program = *costed.program;
  CallPath path(costed, source == 0 ? Picoseconds() : kLongAgo, kLongAgo);
  std::size_t meeting = 0;
  for (std::size_t call = first; call < program.calls.size(); ++call) {
    const bool meets = meeting_of(program.at(program.calls[call].routine)) != nullptr;
    if (meets && ++meeting == source) path.stages_meet_until(Picoseconds());
    path.run(call);
    if (meets) tail.meetings[meeting - 1].posted.push_back(path_or_none(path.posted()));
  }
  tail.ends.push_back(path_or_none(path.everything_ended()));
}

}  // namespace

StepTail step_tail(const Program& one_micro_batch, const LeastCosts& costs) {
  const CostedProgram costed = cost_of(one_micro_batch, costs);
  const Parts parts = parts_of(one_micro_batch);
  StepTail tail;
  CallPath begin(costed, Picoseconds(), Picoseconds());
  for (std::size_t call = 0; call < parts.first_forward; ++call) {
    begin.run(call);
    tail.begins_dispatch +=
        dispatch_of(costed, one_micro_batch.at(one_micro_batch.calls[call].routine));
  }
  tail.begins = begin.now();
  for (std::size_t call = parts.first_backward; call < one_micro_batch.calls.size(); ++call) {
    const RoutineId id = one_micro_batch.calls[call].routine;
    const Routine& routine = one_micro_batch.at(id);
    tail.dispatch += dispatch_of(costed, routine);
    const Op* op = meeting_of(routine);
    if (op == nullptr) continue;
    const auto& group = std::get<CollectiveParams>(op->params).group;
    tail.meetings.push_back({group.pipeline_ends,
                             costed.durations[id.index()][std::size_t(op - routine.ops.data())],
                             {}});
  }
  for (std::size_t source = 0; source <= tail.meetings.size(); ++source) {
    follow(costed, parts.first_backward, source, tail);
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
