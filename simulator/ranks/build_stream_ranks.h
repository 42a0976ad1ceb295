// Stream ranks: the simulated ranks of a step on Execution::streams, whose calls are laid out in a
// StreamEngine.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "simulator/engine/routine_map.h"
#include "simulator/engine/stream_engine.h"
#include "simulator/ranks/call_cycles.h"
#include "simulator/ranks/rank_choice.h"

namespace plimsoll {

/// The ports of one call that other calls wait for. Each awaited port is an event of the call, and
/// these events follow the event of the call's end.
class AwaitedPorts {
 public:
  void add(std::size_t port) { bits_ |= std::uint64_t{1} << std::min(port, kLast); }
  bool has(std::size_t port) const { return bits_ >> std::min(port, kLast) & 1; }
  /// Returns which event of the call an awaited port is.
  std::uint32_t event(std::size_t port) const {
    const std::size_t shown = std::min(port, kLast);
    const std::uint64_t before = bits_ & ((std::uint64_t{1} << shown) - 1);
    return 1 + std::uint32_t(std::popcount(before)) + std::uint32_t(port - shown);
  }
  bool operator==(const AwaitedPorts&) const = default;

 private:
  static constexpr std::size_t kLast = 63;  ///< from this port on, all are awaited or none
  std::uint64_t bits_ = 0;
};

/// A routine of a Program as one simulated rank runs it. Some are composed into maps of whole calls
/// (routine_map.h).
struct RankRoutine {
  std::vector<Picoseconds> durations;  ///< by op
  /// The ops as a map; absent where the engine gets them one by one.
  std::optional<Composition> composition;
  /// The maps of its calls, by the ports of them that are awaited.
  std::vector<std::pair<AwaitedPorts, const RoutineMap*>> maps;
  std::vector<std::uint32_t> op_event;  ///< by op: its event, counted from the call's first one
  LinkUse link_use;                     ///< of a call that is one communication
  OverlapCurves::Slowdowns slowdowns;   ///< of a call that is one communication
  Picoseconds computes;                 ///< the time of its ops on the compute stream
};

/// Whether an op of a routine meets ranks of other classes.
bool meets_others(const RoutineFacts& facts, const Expansion& expansion,
                  const NumberedChannels& channels, std::size_t op);

/// Returns the links that a rank's communications share, by op of Expansion::channel_ops. Only a
/// call that is one communication shares links, and only those that several streams of the rank
/// pass. Collectives inside blocks, and others on their streams, go at full speed: the compute
/// stream waits for them.
std::vector<LinkUse> shared_link_uses(const Expansion& expansion, const RankTopology& topology,
                                      std::int64_t rank);

/// Returns the routines of a rank, none of them composed.
std::vector<RankRoutine> rank_routines(const Expansion& expansion, const RankTopology& topology,
                                       std::int64_t rank);

/// Composes each routine whose streams meet no other ranks. Streams of one composed routine get one
/// queue (StreamEngine::add_rank).
void compose_routines(const Expansion& expansion, const NumberedChannels& channels,
                      std::vector<RankRoutine>& routines,
                      std::vector<std::uint32_t>& queue_of_stream);

/// Returns the map of a composed routine for a call with these awaited ports. A new map is added to
/// `maps`, whose elements must not move.
const RoutineMap& map_for(const Routine& routine, const AwaitedPorts& awaited,
                          RankRoutine& rank_routine, std::deque<RoutineMap>& maps);

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

/// A call that no other class of ranks enters becomes one map of its whole routine; the other
/// calls, and all calls of the ranks `by_op`, are laid out op by op. `expansions` are those of all
/// Programs of a job, and must outlive the result. `skipped`, by expansion: the calls that are not
/// simulated (shortened_step.h).
StreamRanks build_stream_ranks(std::span<const Expansion> expansions, const RankTopology& topology,
                               const RankChoice& choice, std::span<const SkippedCalls> skipped = {},
                               std::span<const std::int64_t> by_op = {});

/// Returns when each op of a rank ran, in issue order. The rank is laid out op by op, and `result`
/// is that of a run with Record::all.
std::vector<OpTimes> op_times(const StreamRank& rank, const StreamEngine::Result& result);

}  // namespace plimsoll
