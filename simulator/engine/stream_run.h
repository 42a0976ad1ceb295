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
  struct QueueState {
    std::uint32_t next = 0;          ///< the entry that is worked through next
    std::uint32_t waits_done = 0;    ///< of the queue's waits
    Picoseconds awaited;             ///< the latest of those that belong to the next entry
    std::uint32_t next_blocked = 0;  ///< the next queue that is blocked on the same event
  };
  struct RendezvousState {
    std::uint32_t arrived = 0;
    Picoseconds last;       ///< arrival so far
    Picoseconds if_issued;  ///< the last arrival, had hosts issued earlier
  };

  void reset(std::span<const Picoseconds> starts, std::span<const Event> cycles_from,
             StreamEngine::Record record);
  bool all_through() const;
  void advance_all();
  void advance(std::uint32_t queue);
  void run_delay(const Entry& entry, std::uint32_t clock);
  void record_begin(const Entry& entry, std::uint32_t clock, Picoseconds issued,
                    Picoseconds awaited);
  void prefetch_after(const Entry& entry) const;
  bool wait_for_all(std::uint32_t queue, const Entry& entry);
  bool block(std::uint32_t queue, Event event);
  void fire(Event event, Picoseconds time);
  void run_op(const Entry& entry, std::uint32_t rank, Picoseconds issued, Picoseconds free);
  void run_call(const Entry& entry, std::uint32_t rank, Picoseconds issued, Picoseconds awaited);
  void arrive(const StreamEngine::Participant& participant, Picoseconds time,
              Picoseconds if_issued);
  void complete(std::uint32_t rendezvous, Picoseconds end);
  bool counts_as_host_bound(std::uint32_t rank, const Entry& entry) const;
  void note_host_bound(Picoseconds until);
  Picoseconds host_clock(std::size_t rank, Event after) const;
  void lay_out_links();

  const StreamEngine* engine_;
  std::span<const Picoseconds> starts_;
  std::span<const Event> cycles_from_;
  bool records_all_ = false;
  StreamEngine::Result result_;
  std::vector<std::uint32_t> first_blocked_;  ///< by event: a list of queues through next_blocked
  std::vector<Picoseconds> clocks_;           ///< by stream: when it is free
  /// The part of clocks_ that is delays since the stream's last op, and the part of these delays
  /// that belongs to the next op (Record::all).
  std::vector<Picoseconds> delayed_, delayed_in_op_;
  std::vector<QueueState> queues_;
  std::vector<RendezvousState> rendezvous_;
  std::optional<SharedLinks> shared_;
  std::vector<std::uint32_t> links_, first_link_;  ///< by rendezvous: which of the shared links
  std::size_t link_count_ = 0;
  bool any_blocked_ = false;  ///< the last run ended before all lists in first_blocked_ were empty
  std::vector<std::uint32_t> runnable_;     ///< queues
  std::vector<Picoseconds> inputs_, rows_;  ///< of one call at a time: as many as any map has
};

}  // namespace plimsoll
