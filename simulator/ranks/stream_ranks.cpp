// Finds the events that a call waits for, and the times of ops by their events.
#include "simulator/ranks/stream_ranks.h"

#include "base/error.h"

namespace plimsoll {

void add_awaited(const StreamRank& rank, std::size_t call,
                 std::vector<StreamEngine::Event>& events) {
  const std::uint32_t from = call > 0 ? rank.calls[call - 1].last_wait : 0;
  for (std::uint32_t w = from; w < rank.calls[call].last_wait; ++w) {
    const StreamRank::CallWait wait = rank.waits[w];
    const StreamRank::EngineCall& awaited = rank.calls[wait.call];
    const RankRoutine& routine = rank.routines[awaited.routine];
    if (routine.composition) {
      events.push_back(awaited.first + (wait.port ? awaited.awaited.event(*wait.port) : 0));
    } else if (wait.port) {
      const auto& ports = rank.expansion->program->routines[awaited.routine].ports;
      events.push_back(awaited.first + routine.op_event[ports.at(*wait.port).op]);
    } else {
      for (std::uint32_t last : rank.expansion->routines[awaited.routine].last_ops) {
        events.push_back(awaited.first + routine.op_event[last]);
      }
    }
  }
}

std::vector<OpTimes> op_times(const StreamRank& rank, const StreamEngine::Result& result) {
  INVARIANT(!rank.skipped.any(), "times of a step that calls were skipped of");
  std::vector<OpTimes> times;
  for (const StreamRank::EngineCall& call : rank.calls) {
    const RankRoutine& routine = rank.routines[call.routine];
    INVARIANT(!routine.composition, "times of ops inside a map");
    for (const std::uint32_t op : routine.op_event) {
      const StreamEngine::Event event = call.first + op;
      times.push_back({result.posted[event], result.begin[event], result.fired[event]});
    }
  }
  return times;
}

}  // namespace plimsoll
