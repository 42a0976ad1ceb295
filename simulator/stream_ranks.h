// The simulated ranks of a run on Execution::streams: calls that nobody else enters as maps of
// whole routines, the others op by op; and back to the times of every op.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "simulator/call_cycles.h"
#include "simulator/kernel_delays.h"
#include "simulator/rank_choice.h"
#include "simulator/stream_engine.h"

namespace plimsoll {

/// What a rank's communications share, by op of Expansion::link_ops. Only what is a call of its own
/// does, and only a link that several streams of the rank pass: collectives inside blocks, and what
/// else is on their stream, are waited for by the compute stream and go at full speed.
std::vector<LinkUse> link_uses(const Expansion& expansion, const LinkTopology& topology,
                               std::int64_t rank);

class StreamRanks {
 public:
  /// `expansions` are of all Programs of a job; all arguments must outlive this. `left_out`: calls
  /// that are not simulated, by expansion (shortened_step.h).
  StreamRanks(std::span<const Expansion> expansions, const LinkTopology& topology,
              const RankChoice& choice, std::span<const LeftOut> left_out = {});

  StreamEngine& engine() { return engine_; }
  /// Of a simulated rank with calls left out, at each beginning of one of the cycles that stay and
  /// at the end of the last.
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
    std::vector<Picoseconds> durations;     ///< by op
    const RoutineMap* map = nullptr;        ///< absent: op by op
    std::vector<std::uint32_t> port_event;  ///< by port: offset from the call's first event
    std::vector<std::uint32_t> op_event;    ///< without map, by op: the same
    LinkUse link_use;                       ///< of a call that is one communication
    OverlapCurves::Slowdowns slowdowns;     ///< the same
    Picoseconds computes;                   ///< what its ops on the compute stream take alone
  };
  struct SimulatedRank {
    const Expansion* expansion = nullptr;
    std::vector<RankRoutine> routines;
    std::vector<StreamEngine::Event> first_event;  ///< by call
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
  void compose_routine(const Expansion& expansion, std::size_t routine,
                       const std::vector<bool>& awaited_ports, RankRoutine& into);
  void add_calls(SimulatedRank& rank, const RankChannels& channels);
  /// What is issued from here on comes after these events, and so after what they are of.
  static void wait_for(const SimulatedRank& rank, std::span<const StreamEngine::Event> events,
                       KernelDelays& delays);
  /// Notes what begins at a call.
  void begin_call(SimulatedRank& rank, std::size_t call, KernelDelays& delays);
  /// Of its kernels, or of the communication that it is, by what goes on beside them.
  void add_delays(SimulatedRank& rank, std::size_t call,
                  std::span<const StreamEngine::Event> awaited, KernelDelays& delays);
  void compare_left_out(const SimulatedRank& rank, const RankChannels& channels);
  /// The events that a call waits for; those of the calls before it are known.
  void add_awaited(const SimulatedRank& rank, std::size_t call,
                   std::vector<StreamEngine::Event>& events) const;

  StreamEngine engine_;
  std::deque<RoutineMap> maps_;
  std::vector<SimulatedRank> ranks_;
  std::map<std::uint64_t, std::size_t> meetings_left_out_;  // by channel: in each cycle
  bool may_be_shortened_ = true;
};

}  // namespace plimsoll
