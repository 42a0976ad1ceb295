// The stream engine: streams of a GPU run by themselves (Execution::streams). Every time is the
// latest of some earlier times plus a duration, so no clock is needed: the engine works through
// whatever is known. Only communications that share links are ordered by time (shared_links.h).
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

/// The ops of some ranks, and whole calls as RoutineMaps, laid out once and run from any start
/// times. Results are exact and deterministic, and a shift of all starts shifts all times.
class StreamEngine {
 public:
  /// An instant that an op or a call brings about. It fires once in a run. Events are numbered in
  /// the order in which they are added.
  using Event = std::uint32_t;

  StreamEngine();
  ~StreamEngine();
  StreamEngine(StreamEngine&&) noexcept;
  StreamEngine& operator=(StreamEngine&&) noexcept;

  /// Begins a new rank; everything that is added next belongs to it. A queue holds what one stream,
  /// or several streams together, are given, in the order of issue. queue_of_stream[s] is s for a
  /// stream with a queue of its own, else the lowest stream of its queue. A queue of several
  /// streams must hold no rendezvous: two ranks could then block each other in the engine only.
  void add_rank(std::vector<std::uint32_t> queue_of_stream);

  struct Op {
    std::uint32_t stream = 0;
    Picoseconds dispatch, duration;
    /// As TimedOp::rendezvous. The upper half is a channel and the lower half counts the channel's
    /// rendezvous, both from 0.
    std::optional<std::uint64_t> rendezvous = std::nullopt;
    LinkUse link_use = {};
  };
  /// Returns the event of the op's end. `waits` are earlier events of this rank.
  Event add_op(const Op& op, std::span<const Event> waits);
  /// Adds a call whose streams share a queue, and returns the first of its events (RoutineMap).
  /// `map` must outlive the engine.
  Event add_call(const RoutineMap& map, std::span<const Event> waits);
  /// Makes the host issue what follows only when these events have fired, and `cost` later. Returns
  /// the event at which the host goes on.
  Event add_host_wait(Picoseconds cost, std::span<const Event> waits);

  /// Where the lost time of a slowed stream counts: before the stream's next op, or as a part of
  /// that op, which then begins earlier and takes longer.
  enum class Delay : bool { before_op, in_op };
  /// Makes the stream busy for this much longer before it begins its next op. A delay has no event.
  void add_delay(std::uint32_t stream, Picoseconds delay, Delay counts);

  /// An instant at which a host issues: `issued` after an event of its rank, or after the rank's
  /// start where `after` is absent.
  struct HostTime {
    std::optional<Event> after;
    Picoseconds issued;
  };
  /// The instant from which the host issues what is added to the last rank next.
  HostTime host_time() const;
  Event events() const { return events_; }  ///< how many were added so far

  /// The times that a run records of ops: their ends, or also when they were ready and began.
  enum class Record : bool { ends, all };
  struct Result {
    std::vector<Picoseconds> fired;               ///< by event
    std::vector<Picoseconds> posted, begin;       ///< by event, of ops (Record::all); not of calls
    std::vector<Picoseconds> host_end, rank_end;  ///< by rank
    /// The last event that would fire earlier if a host issued earlier. Only what a host issues
    /// after its start, or after an event before `cycles_from` (try_run), counts.
    Picoseconds host_bound_until;
  };
  /// Runs everything once; starts[r] is the time at which rank r's host begins. A rendezvous that
  /// never ends breaks an invariant. The next run overwrites the result. Nothing can be added after
  /// a run.
  const Result& run(std::span<const Picoseconds> starts, Record record = Record::all);
  /// As run() with Record::ends; null where some rendezvous never ends. `cycles_from` is by rank.
  const Result* try_run(std::span<const Picoseconds> starts, std::span<const Event> cycles_from);
  std::size_t ranks() const { return ranks_.size(); }

 private:
  friend class StreamRun;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  enum class Kind : std::uint8_t { local, rendezvous, call, delay_before_op, delay_in_op };
  /// An entry of a queue. It is small because a run reads all of them, and waits for memory most of
  /// its time.
  struct alignas(32) Entry {
    union {
      std::int64_t value = 0;  ///< of an op its picoseconds, of a rendezvous its number
      const RoutineMap* map;   ///< of a call
    };
    /// When the host issues the op, or turns to the call or the host wait: this long after `after`.
    Picoseconds issued;
    Event after = kNone;          ///< the host's last wait before this entry; kNone: the start
    Event event = 0;              ///< the first of its events
    std::uint32_t last_wait = 0;  ///< its waits in Queue::waits end here; the entry before: begin
    std::uint16_t stream = 0;
    Kind kind = Kind::local;
  };
  struct Queue {
    std::uint32_t rank = 0;
    std::vector<Entry> entries;
    std::vector<Event> waits;
  };
  struct Rank {
    std::uint32_t first = 0;  ///< of its streams, which each have a queue and a clock
    Event first_event = 0;
    std::vector<std::uint32_t> queue_of_stream;  ///< the last one is the host's, for its waits
    Event after = kNone;                         ///< the host's last wait
    Picoseconds issued;                          ///< host time since then
  };
  struct Rendezvous {
    std::uint32_t participants = 0;
    std::uint32_t links = kNone;  ///< first of a list in link_uses_
    Picoseconds duration, latency;
  };
  struct LinkOfRendezvous {
    std::uint32_t link = 0, next = kNone;
  };
  std::uint32_t join_rendezvous(const Op& op);
  std::uint32_t& number_of(std::uint64_t rendezvous);
  Entry& add_entry(std::uint32_t stream, std::span<const Event> waits);
  StreamRun& state_for(std::span<const Picoseconds> starts);

  std::vector<Rank> ranks_;
  std::vector<Queue> queues_;
  std::vector<Rendezvous> rendezvous_;
  std::size_t most_inputs_ = 0, most_rows_ = 0;  ///< of any call
  std::vector<LinkOfRendezvous> link_uses_;
  std::vector<std::vector<std::uint32_t>> numbers_;  ///< of rendezvous_: [channel][count]
  Event events_ = 0;
  std::unique_ptr<StreamRun> run_;
};

}  // namespace plimsoll
