// One run of a StreamEngine: what is known of its times so far, and who waits for what is not.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "simulator/engine/shared_links.h"
#include "simulator/engine/stream_engine.h"

namespace plimsoll {

/// Runs one engine, to which nothing is added any more. It keeps its memory from run to run.
class StreamRun {
 public:
  explicit StreamRun(const StreamEngine& engine);

  /// `engine` as before, wherever it has been moved to.
  void run(const StreamEngine& engine, std::span<const Picoseconds> starts,
           std::span<const StreamEngine::Event> held_from, StreamEngine::Keep keep);
  bool is_complete() const;
  void require_complete() const;
  /// Once it is complete.
  const StreamEngine::Result& result();

 private:
  using Event = StreamEngine::Event;
  using Task = StreamEngine::Task;
  struct LaneState {
    std::uint32_t next = 0;        ///< task
    std::uint32_t waits_done = 0;  ///< of the lane
    Picoseconds awaited;           ///< the latest of those of the task
    std::int64_t next_waiter = 0;  ///< list of the lanes blocked on one event (waiter)
  };
  struct MeetingState {
    std::uint32_t arrived = 0;
    Picoseconds last;
    Picoseconds unissued;  ///< ... if hosts had issued earlier
  };

  void reset(std::span<const Picoseconds> starts, std::span<const Event> held_from,
             StreamEngine::Keep keep);
  void advance_all();
  void advance(std::uint32_t lane);
  void prefetch_after(const Task& task) const;
  bool wait_for_all(std::uint32_t lane, const Task& task);
  bool block(std::uint32_t lane, Event event);
  void fire(Event event, Picoseconds time);
  void run_op(const Task& task, std::uint32_t rank, Picoseconds issued, Picoseconds free);
  void run_call(const Task& task, std::uint32_t rank, Picoseconds issued, Picoseconds awaited);
  void arrive(const StreamEngine::Participant& participant, Picoseconds time, Picoseconds unissued);
  void complete(std::uint32_t meeting, Picoseconds end);
  bool counts_as_held(std::uint32_t rank, const Task& task) const;
  void hold_up(Picoseconds until);
  Picoseconds host_clock(std::size_t rank, Event since) const;
  void lay_out_links();

  const StreamEngine* engine_;
  std::span<const Picoseconds> starts_;
  std::span<const Event> held_from_;
  bool keeps_all_ = false;
  StreamEngine::Result result_;
  std::vector<Picoseconds> clocks_;
  /// The part of clocks_ that is delays since the stream's last task, and the part of these that
  /// belongs to the next task's own time (keeps_all_).
  std::vector<Picoseconds> delayed_, of_next_;
  std::vector<LaneState> lanes_;
  std::vector<MeetingState> meetings_;
  std::optional<SharedLinks> shared_;
  std::vector<std::uint32_t> links_, first_link_;  ///< by meeting: which of the shared links
  std::size_t link_count_ = 0;
  std::vector<std::uint32_t> runnable_;
  std::vector<Picoseconds> inputs_, rows_;  ///< of one call at a time: as many as any map has
};

}  // namespace plimsoll
