// Reads the times of ops that the engine ran by themselves, and computes those inside maps.
#include "simulator/ranks/stream_op_times.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "simulator/ranks/framework_waits.h"

namespace plimsoll {

namespace {

/// Follows the calls of one rank in issue order.
class OpTimesReader {
 public:
  OpTimesReader(const StreamRank& rank, const StreamEngine::Result& result, Picoseconds start)
      : rank_(rank),
        result_(result),
        start_(start),
        program_(*rank.expansion->program),
        framework_(*rank.expansion) {
    clocks_.fill(start);
  }

  std::vector<OpTimes> read() {
    for (std::size_t c = 0; c < program_.calls.size(); ++c) {
      const std::size_t routine = program_.calls[c].routine.index();
      const Picoseconds awaited = awaited_by(c);
      clocks_[std::size_t(Stream::compute)] += rank_.delays[c];
      if (rank_.routines[routine].composition) {
        framework_.issued(program_.calls[c].routine, rank_.calls[c].first);
        compute_ops(c, awaited);
      } else {
        read_ops(c);
      }
    }
    return std::move(times_);
  }

 private:
  /// Returns the latest of the events that the call waits for.
  Picoseconds awaited_by(std::size_t call) {
    Picoseconds latest;
    events_.clear();
    add_awaited(rank_, call, events_);
    for (const StreamEngine::Event event : events_) {
      latest = std::max(latest, result_.fired[event]);
    }
    for (const StreamEngine::Event event : framework_.before_call(call)) {
      latest = std::max(latest, result_.fired[event]);
    }
    return latest;
  }

  /// The engine has run every op of the call by itself.
  void read_ops(std::size_t call) {
    const std::size_t routine = program_.calls[call].routine.index();
    const std::vector<Op>& ops = program_.routines[routine].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const StreamEngine::Event event =
          rank_.calls[call].first + rank_.routines[routine].op_event[i];
      framework_.issued(ops[i], false, event);
      times_.push_back({result_.posted[event], result_.begin[event], result_.fired[event]});
      clocks_[std::size_t(ops[i].stream)] = result_.fired[event];
    }
  }

  /// The engine has applied a map. Its ops are run here, from when the host issues the call.
  void compute_ops(std::size_t call, Picoseconds awaited) {
    const Expansion& expansion = *rank_.expansion;
    const std::size_t routine = program_.calls[call].routine.index();
    const std::vector<Op>& ops = program_.routines[routine].ops;
    const RoutineFacts& facts = expansion.routines[routine];
    const std::size_t base = times_.size();
    const StreamEngine::HostTime& host = rank_.host[call];
    Picoseconds issued = host.issued + (host.after ? result_.fired[*host.after] : start_);
    Picoseconds delay = rank_.delays[call];  // it is a part of the first op that computes
    for (std::size_t i = 0; i < ops.size(); ++i) {
      issued += expansion.dispatch(facts, i);
      Picoseconds ready = issued;
      if (std::find(facts.first_ops.begin(), facts.first_ops.end(), i) != facts.first_ops.end()) {
        ready = std::max(ready, awaited);
      }
      for (std::uint32_t wait : ops[i].waits) ready = std::max(ready, times_[base + wait].end);
      Picoseconds& clock = clocks_[std::size_t(ops[i].stream)];
      Picoseconds begin = std::max(ready, clock);
      clock = begin + rank_.routines[routine].durations[i];
      if (ops[i].stream == Stream::compute) {
        begin = std::max(ready, begin - std::exchange(delay, Picoseconds()));
      }
      times_.push_back({begin, begin, clock});
      if (facts.host_waits[i]) issued = std::max(issued, clock) + expansion.host_wait;
    }
  }

  const StreamRank& rank_;
  const StreamEngine::Result& result_;
  const Picoseconds start_;
  const Program& program_;
  FrameworkWaits framework_;
  std::array<Picoseconds, kStreams> clocks_;  ///< when each stream is free
  std::vector<StreamEngine::Event> events_;
  std::vector<OpTimes> times_;
};

}  // namespace

std::vector<OpTimes> stream_op_times(const StreamRank& rank, const StreamEngine::Result& result,
                                     Picoseconds start) {
  INVARIANT(!rank.skipped.any(), "times of a step that calls were skipped of");
  return OpTimesReader(rank, result, start).read();
}

}  // namespace plimsoll
