// Execution::streams: streams run by themselves, so every time is the latest of some earlier times
// plus a duration, and no clock is needed to run: whatever is known is worked through. Only what
// shares links is ordered by time (shared_links.h): when nothing else is left to work through, all
// that can begin before the first of these ends is known.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "simulator/engine/engine.h"
#include "simulator/engine/routine_map.h"

namespace plimsoll {

class StreamRun;

/// Ops, and whole calls as RoutineMaps, of some ranks; laid out once and run from any start times.
/// Exact and deterministic: a shift of all starts shifts all results.
class StreamEngine {
 public:
  using Event = std::uint32_t;  ///< fires once in a run

  StreamEngine();
  ~StreamEngine();
  StreamEngine(StreamEngine&&) noexcept;
  StreamEngine& operator=(StreamEngine&&) noexcept;

  /// Begins a new rank: what is added next is of it. Streams of one lane are worked through
  /// together in issue order: lane_of_stream[s] == s for a stream by itself, else the lowest stream
  /// of its lane. A lane of several streams must hold no rendezvous, or two ranks could block each
  /// other that in truth do not.
  void add_rank(std::vector<std::uint32_t> lane_of_stream);

  struct Op {
    std::uint32_t stream = 0;
    Picoseconds dispatch, duration;
    /// As Item::rendezvous. Looked up by its upper half, then its lower one: channels and their
    /// meetings, both counted from 0.
    std::optional<std::uint64_t> rendezvous = std::nullopt;
    LinkUse link_use = {};
  };
  /// Its event: it has ended. Waits: earlier events of this rank.
  Event add_op(const Op& op, std::span<const Event> waits);
  /// A call; its streams must be of one lane. The first of its events (RoutineMap::row_end).
  /// `map` must outlive the engine.
  Event add_call(const RoutineMap& map, std::span<const Event> waits);
  /// The host issues what follows only when these events have fired, and `cost` later. Its event:
  /// the host goes on.
  Event add_host_wait(Picoseconds cost, std::span<const Event> waits);

  /// The stream is busy for so much longer before what is added to it next, which other streams
  /// slow. It is no event. `of_next`: an op begins before it (Result::begin), the time is its own.
  void add_delay(std::uint32_t stream, Picoseconds delay, bool of_next);

  /// An instant of a host that issues: so long after an event of its rank, else after its start.
  struct HostTime {
    std::optional<Event> since;
    Picoseconds issued;
  };
  /// From when the host issues what is added to the last rank next.
  HostTime host_time() const;
  Event events() const { return events_; }  ///< so far: the next one's number

  /// Whether a run keeps when ops were ready and began, too.
  enum class Keep : bool { ends, all };
  struct Result {
    std::vector<Picoseconds> fired;               ///< by event
    std::vector<Picoseconds> posted, begin;       ///< by event, of ops; unset for calls (Keep::all)
    std::vector<Picoseconds> host_end, rank_end;  ///< by rank
    /// The last event that would fire earlier if a host issued earlier, of what is issued so long
    /// after the rank's start, or after an event before `held_from` (below).
    Picoseconds held_up_until;
  };
  /// starts[r]: when rank r's host begins. A rendezvous that never completes breaks an invariant.
  /// The result is there until the next run, which takes its memory; nothing is added after a run.
  const Result& run(std::span<const Picoseconds> starts, Keep keep = Keep::all);
  /// ... or nothing comes back. held_from: by rank.
  const Result* try_run(std::span<const Picoseconds> starts, std::span<const Event> held_from);
  std::size_t ranks() const { return ranks_.size(); }

 private:
  friend class StreamRun;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  enum class Kind : std::uint8_t { local, arrival, call, delay, delay_of_next };
  /// Small, because a run reads all of them: most of its time is spent waiting for memory.
  struct Task {
    union {
      std::int64_t what = 0;  ///< picoseconds; or an index into participants_
      const RoutineMap* map;  ///< of a call
    };
    /// From `since`: of an op, when it is issued; of a call or a wait, when its host comes to it.
    Picoseconds issued;
    Event since = kNone;          ///< the host's last wait before it; none: the rank's start
    Event event = 0;              ///< the first of its events
    std::uint32_t last_wait = 0;  ///< range of the lane's waits from the task before
    std::uint16_t stream = 0;
    Kind kind = Kind::local;
  };
  struct Lane {
    std::uint32_t rank = 0;
    std::vector<Task> tasks;
    std::vector<Event> waits;
  };
  struct Rank {
    std::uint32_t first = 0;  ///< of its streams: of their lanes and of their clocks
    std::vector<std::uint32_t> lane_of_stream;  ///< the last one: the host's, for its waits
    Event since = kNone;                        ///< of the host's last wait
    Picoseconds issued;                         ///< so far, from then
  };
  struct Meeting {
    std::uint32_t participants = 0;
    std::uint32_t first = kNone;  ///< of participants_
    std::uint32_t links = kNone;  ///< head of a list in link_uses_
    Picoseconds duration, latency;
  };
  struct Participant {
    std::uint32_t meeting = 0, next = kNone;  ///< the next one of the meeting
    std::uint32_t lane = 0;                   ///< blocked until it ends; the clock of its stream
    Event event = 0;
  };
  struct LinkOfMeeting {
    std::uint32_t link = 0, next = kNone;
  };
  std::uint32_t meeting_of(const Op& op);
  std::uint32_t& number_of(std::uint64_t rendezvous);
  Task& add_task(std::uint32_t stream, std::span<const Event> waits);
  StreamRun& state_for(std::span<const Picoseconds> starts);

  std::vector<Rank> ranks_;
  std::vector<Lane> lanes_;
  std::vector<Participant> participants_;
  std::vector<Meeting> meetings_;
  std::size_t most_inputs_ = 0, most_rows_ = 0;  ///< of any call
  std::vector<LinkOfMeeting> link_uses_;
  std::vector<std::vector<std::uint32_t>> numbers_;  ///< of meetings_, by halves of rendezvous
  Event events_ = 0;
  std::unique_ptr<StreamRun> run_;
};

}  // namespace plimsoll
