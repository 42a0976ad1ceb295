// Stream ranks: the simulated ranks of a step on Execution::streams, laid out in a StreamEngine.
// build_stream_ranks.h lays them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "simulator/engine/stream_engine.h"
#include "simulator/ranks/call_cycles.h"
#include "simulator/ranks/rank_routines.h"

namespace plimsoll {

/// One simulated rank: its calls that are not skipped, and their events in the engine.
struct StreamRank {
  struct EngineCall {
    AwaitedPorts awaited;           ///< ports that later calls wait for
    StreamEngine::Event first = 0;  ///< of its events
    std::uint32_t routine = 0;
    std::uint32_t last_wait = 0;  ///< its waits in `waits` end here; the call before: begin
  };
  struct CallWait {
    std::uint32_t call = 0;             ///< index into `calls`
    std::optional<std::uint32_t> port;  ///< absent: the end of the call
  };
  /// The state at the beginning of a cycle, or at the end of the last one.
  struct CycleBegin {
    StreamEngine::Event event = 0;  ///< the cycle's first one
    StreamEngine::HostTime host;    ///< when the cycle's first call is issued
  };

  const Expansion* expansion = nullptr;
  SkippedCalls skipped;
  std::vector<RankRoutine> routines;
  std::vector<EngineCall> calls;
  std::vector<CallWait> waits;
  std::vector<CycleBegin> cycles;      ///< of the cycles that stay, where some are skipped
  StreamEngine::Event events_end = 0;  ///< the first event behind those of this rank
};

/// All simulated ranks of a step.
struct StreamRanks {
  StreamEngine engine;
  std::deque<RoutineMap> maps;  ///< of the calls in `engine`
  std::vector<StreamRank> ranks;
  /// Whether skipping calls leaves whole rendezvous out: all ranks of each skip as many of them.
  bool may_be_shortened = true;
};

/// Adds the events that a call of `rank.calls` waits for. The calls before it must be laid out.
void add_awaited(const StreamRank& rank, std::size_t call,
                 std::vector<StreamEngine::Event>& events);

/// Returns when each op of a rank ran, in issue order. The rank is laid out op by op, and `result`
/// is that of a run with Record::all.
std::vector<OpTimes> op_times(const StreamRank& rank, const StreamEngine::Result& result);

}  // namespace plimsoll
