// Finds the events that a call waits for.
#include "simulator/ranks/stream_ranks.h"

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

}  // namespace plimsoll
