// The simulated ranks of a run on Execution::streams: calls that nobody else enters as maps of
// whole routines, the others op by op; and back to the times of every op.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "simulator/engine/stream_engine.h"
#include "simulator/ranks/call_cycles.h"
#include "simulator/ranks/kernel_delays.h"
#include "simulator/ranks/rank_choice.h"

namespace plimsoll {

/// The links that a rank's communications share, by op of Expansion::link_ops. Only a call of its
/// own shares, and only a link that several streams of the rank pass: collectives inside blocks,
/// and what else is on their stream, are waited for by the compute stream and go at full speed.
std::vector<LinkUse> link_uses(const Expansion& expansion, const LinkTopology& topology,
                               std::int64_t rank);

/// Which ports of one call others wait for; they are its events, behind that of its end.
class AwaitedPorts {
 public:
  void add(std::size_t port) { bits_ |= std::uint64_t{1} << std::min(port, kLast); }
  bool has(std::size_t port) const { return bits_ >> std::min(port, kLast) & 1; }
  /// For an awaited port: which event of the call it is.
  std::uint32_t event(std::size_t port) const {
    const std::size_t shown = std::min(port, kLast);
    const std::uint64_t before = bits_ & ((std::uint64_t{1} << shown) - 1);
    return 1 + std::uint32_t(std::popcount(before)) + std::uint32_t(port - shown);
  }
  bool operator==(const AwaitedPorts&) const = default;

 private:
  static constexpr std::size_t kLast = 63;  ///< it and all behind it are awaited together
  std::uint64_t bits_ = 0;
};

class StreamRanks {
 public:
  /// `expansions` are of all Programs of a job; all arguments must outlive this. `left_out`: calls
  /// that are not simulated, by expansion (shortened_step.h).
  StreamRanks(std::span<const Expansion> expansions, const LinkTopology& topology,
              const RankChoice& choice, std::span<const LeftOut> left_out = {});

  StreamEngine& engine() { return engine_; }
  /// The state of a simulated rank with calls left out, at each beginning of one of the cycles that
  /// stay and at the end of the last.
  struct CycleBegin {
    StreamEngine::Event event = 0;  ///< its first one
    StreamEngine::HostTime host;    ///< when its first call is issued
  };
  const std::vector<CycleBegin>& cycle_begins(std::size_t c) const { return ranks_[c].cycles; }
  StreamEngine::Event first_event_after(std::size_t c) const { return ranks_[c].events_end; }
  /// Whether ranks that meet leave out as many meetings.
  bool may_be_shortened() const { return may_be_shortened_; }
  /// When each op of the c-th simulated rank ran, in issue order.
  std::vector<ItemTimes> op_times(std::size_t c, const StreamEngine::Result& result,
                                  Picoseconds start) const;

 private:
  /// A routine as one rank runs it.
  struct RankRoutine {
    std::vector<Picoseconds> durations;  ///< by op
    /// Absent: op by op.
    std::optional<Composition> composition;
    /// ... and the maps that its calls have, by what of them is waited for.
    std::vector<std::pair<AwaitedPorts, const RoutineMap*>> maps;
    std::vector<std::uint32_t> op_event;  ///< op by op: by op, offset from the first event
    LinkUse link_use;                     ///< of a call that is one communication
    OverlapCurves::Slowdowns slowdowns;   ///< the same
    Picoseconds computes;                 ///< what its ops on the compute stream take alone
  };
  struct SimulatedRank {
    const Expansion* expansion = nullptr;
    std::vector<RankRoutine> routines;
    /// A call that is not left out, as the engine has it. Calls behind it look it up.
    struct LaidOut {
      AwaitedPorts awaited;
      StreamEngine::Event first = 0;  ///< of its events
      std::uint32_t routine = 0;
      std::uint32_t last_wait = 0;  ///< range of `waits` from the call before
    };
    std::vector<LaidOut> calls;
    struct AwaitedCall {
      std::uint32_t call = 0;
      std::uint32_t port = kWhole;
    };
    static constexpr std::uint32_t kWhole = ~std::uint32_t{0};
    std::vector<AwaitedCall> waits;
    std::size_t laid_out = 0;  ///< of `calls`, so far
    /// By call: from when it is issued; where none is left out.
    std::vector<StreamEngine::HostTime> host;
    std::vector<Picoseconds> delays;  ///< the same: of its kernels, by what goes on beside them
    /// The calls that are one communication: their events, ascending, streams and places among
    /// calls.
    struct Communication {
      StreamEngine::Event event = 0;
      Stream stream = Stream::compute;
      std::size_t call = 0;
    };
    std::vector<Communication> communications;
    std::vector<CycleBegin> cycles;
    StreamEngine::Event events_end = 0;
    LeftOut left_out;
  };
  void add_rank(const Expansion& expansion, const LeftOut& left_out, const LinkTopology& topology,
                const RankChoice& choice, std::int64_t rank, Channels& channels);
  /// Chooses the routines that become maps; lane of each stream.
  std::vector<std::uint32_t> compose_routines(SimulatedRank& rank, const RankChannels& channels);
  static Composition compose_routine(const Expansion& expansion, std::size_t routine,
                                     const RankRoutine& of_rank);
  /// The map of a composed routine, for a call with these awaited ports.
  const RoutineMap& map_for(const Routine& routine, const AwaitedPorts& awaited,
                            RankRoutine& of_rank);
  void add_calls(SimulatedRank& rank, const RankChannels& channels);
  /// Reads the calls that are not left out, and which of their ports are awaited.
  static void read_calls(SimulatedRank& rank);
  struct Issue;
  void add_call(Issue& issue, std::size_t call);
  /// Adds the ops of a call of a routine that is not composed.
  void add_ops(Issue& issue, RoutineId routine);
  /// Adds the events that the host waits for before the op.
  void host_waits(Issue& issue, const Op& op);
  /// Ops that are issued from here on come after these events.
  static void wait_for(const SimulatedRank& rank, std::span<const StreamEngine::Event> events,
                       KernelDelays& delays);
  /// Notes what begins at a call.
  void begin_call(SimulatedRank& rank, std::size_t call, KernelDelays& delays);
  /// Adds the delays of a call's kernels, or of the communication that it is, by the work beside
  /// them.
  void add_delays(SimulatedRank& rank, std::size_t call,
                  std::span<const StreamEngine::Event> awaited, KernelDelays& delays);
  void compare_left_out(const SimulatedRank& rank, const RankChannels& channels);
  /// The events that a call of `rank.calls` waits for; those of the calls before it are known.
  static void add_awaited(const SimulatedRank& rank, std::size_t call,
                          std::vector<StreamEngine::Event>& events);

  StreamEngine engine_;
  std::deque<RoutineMap> maps_;
  std::vector<SimulatedRank> ranks_;
  std::map<std::uint64_t, std::size_t> meetings_left_out_;  // by channel: in each cycle
  bool may_be_shortened_ = true;
};

}  // namespace plimsoll
