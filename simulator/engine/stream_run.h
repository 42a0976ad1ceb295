// One run of a StreamEngine: the times that are known so far, and who waits for the others.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "simulator/engine/shared_links.h"
#include "simulator/engine/stream_engine.h"

namespace plimsoll {

/// Runs one engine to which nothing is added any more. It keeps its memory from run to run.
class StreamRun {
 public:
  explicit StreamRun(const StreamEngine& engine);

  /// `engine` is the same as before, though it may have been moved.
  void run(const StreamEngine& engine, std::span<const Picoseconds> starts,
           std::span<const StreamEngine::Event> cycles_from, StreamEngine::Record record);
  bool is_complete() const;
  void require_complete() const;
  /// The run must be complete.
  const StreamEngine::Result& result();

 private:
  using Event = StreamEngine::Event;
  using Entry = StreamEngine::Entry;
  /// A queue and how far the run has got in it. It fills one cache line.
  struct alignas(64) QueueState {
    const Entry *next = nullptr, *end = nullptr;  ///< entries that are not worked through yet
    const Event* waits = nullptr;                 ///< of all entries of the queue
    std::uint32_t waits_done = 0;                 ///< of `waits`
    std::uint32_t rank = 0;
    std::uint32_t first = 0;         ///< of the rank's streams, in clocks_ and blocked_
    std::uint32_t next_arrived = 0;  ///< the next queue that has arrived at the same rendezvous
    Event event = 0;                 ///< of the entry that has arrived there
    Picoseconds awaited;             ///< the latest wait of the next entry so far
  };
  /// The facts and the state of a rendezvous. They lie together, because a run waits for memory
  /// most of its time.
  struct alignas(64) Rendezvous {
    std::uint32_t participants = 0;
    std::uint32_t arrived = 0;
    std::uint32_t first_arrived = 0;              ///< of a list of queues, if any has arrived
    std::uint32_t first_link = 0, last_link = 0;  ///< range of links_
    Picoseconds latency;                          ///< at most its duration
    Picoseconds duration;
    Picoseconds last;       ///< arrival so far
    Picoseconds if_issued;  ///< the last arrival, had hosts issued earlier
  };

  void reset(std::span<const Picoseconds> starts, std::span<const Event> cycles_from,
             StreamEngine::Record record);
  void advance_all();
  void advance(std::uint32_t queue);
  void run_delay(const Entry& entry, std::uint32_t clock);
  void record_begin(const Entry& entry, std::uint32_t clock, Picoseconds issued,
                    Picoseconds awaited);
  bool wait_for_all(std::uint32_t queue, QueueState& state, const Entry& entry);
  bool block(std::uint32_t queue, const QueueState& state, Event event);
  void fire(const QueueState& queue, Event event, Picoseconds time);
  void run_op(const Entry& entry, const QueueState& queue, Picoseconds issued, Picoseconds free);
  void run_call(const Entry& entry, const QueueState& queue, Picoseconds issued,
                Picoseconds awaited);
  void arrive(std::uint32_t queue, const Entry& entry, Picoseconds time, Picoseconds if_issued);
  void complete(std::uint32_t rendezvous, Picoseconds end);
  bool counts_as_host_bound(std::uint32_t rank, const Entry& entry) const;
  void note_host_bound(Picoseconds until);
  Picoseconds host_clock(std::size_t rank, Event after) const;
  void lay_out_rendezvous();

  const StreamEngine* engine_;
  std::span<const Picoseconds> starts_;
  std::span<const Event> cycles_from_;
  bool records_all_ = false;
  StreamEngine::Result result_;
  std::vector<char> has_fired_;  ///< by event
  /// A queue that waits for an event of its rank. Few queues of a rank are blocked at once, so all
  /// of them are looked at whenever an event of the rank fires.
  struct Blocked {
    Event event = 0;
    std::uint32_t queue = 0;
  };
  std::vector<Blocked> blocked_;              ///< those of a rank begin at its first stream
  std::vector<std::uint32_t> blocked_count_;  ///< by rank
  std::vector<Picoseconds> clocks_;           ///< by stream: when it is free
  /// The part of clocks_ that is delays since the stream's last op, and the part of these delays
  /// that belongs to the next op (Record::all).
  std::vector<Picoseconds> delayed_, delayed_in_op_;
  std::vector<QueueState> queues_;
  std::vector<Rendezvous> rendezvous_;
  std::size_t open_ = 0;  ///< arrivals whose rendezvous has not ended
  std::optional<SharedLinks> shared_;
  std::vector<std::uint32_t> links_;  ///< of all rendezvous: which of the shared links
  std::size_t link_count_ = 0;
  bool is_clean_ = true;  ///< no queue has arrived at a rendezvous that has not ended
  std::vector<std::uint32_t> runnable_;     ///< queues
  std::vector<Picoseconds> inputs_, rows_;  ///< of one call at a time: as many as any map has
};

}  // namespace plimsoll
