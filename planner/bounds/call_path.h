// Call path: finds the longest path through some calls of one rank, by the simulator's rules for
// who does the work (Execution in simulator/engine/engine.h). Everything outside these calls counts
// as over long ago, unless said otherwise. Leaving out earlier work and other ranks only shortens a
// longest path, so every time here is at most the simulated one.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "planner/bounds/least_costs.h"
#include "simulator/ranks/kernel_delays.h"

namespace plimsoll {

/// A time before everything, which nobody has to wait for.
inline constexpr Picoseconds kLongAgo{-(std::int64_t{1} << 60)};
/// Times before this one are still from long ago, with some durations added.
inline constexpr Picoseconds kHardlyLongAgo{-(std::int64_t{1} << 59)};

/// Returns `count` times `one`. Throws InfeasibleError beyond the clock's range.
Picoseconds repeated(Picoseconds one, std::int64_t count);

/// Routines of one Program with the least times of their ops on the device and on the host.
struct CostedProgram {
  const Program* program = nullptr;
  std::vector<std::vector<Picoseconds>> durations, dispatch;  ///< [routine][op]
  std::vector<Picoseconds> computes;          ///< [routine], of ops on the compute stream, alone
  std::vector<double> slowdown;               ///< [routine], 0 except for one communication
  std::vector<std::vector<bool>> host_waits;  ///< [routine][op]: host_waits() in expand.h
  Picoseconds dispatch_call, host_wait;
  bool host_executes = false;
};
/// Costs the routines that calls use; others have no durations.
CostedProgram cost_of(const Program& program, const LeastCosts& costs);
/// Returns the host time to issue a call.
Picoseconds dispatch_of(const CostedProgram& costed, RoutineId routine);

/// Whether ranks of several stages take part in this collective.
bool crosses_stages(const Op& op);

/// Runs calls one after the other.
class CallPath {
 public:
  /// The compute stream, or the host that executes, is free at `now`. The host has issued all
  /// earlier calls at `issued`, which means nothing where the host executes.
  CallPath(const CostedProgram& costed, Picoseconds now, Picoseconds issued);

  /// Runs the call at `index`. Calls that it waits for and that were not run here end at `others`.
  void run(std::size_t index, Picoseconds others = kLongAgo);
  /// Sets the earliest end of a collective in the next call that is run. `which` counts the call's
  /// collectives that other stages take part in.
  void stages_meet_until(std::size_t which, Picoseconds end) { floor_ = {which, end}; }

  /// Returns when the host has issued all calls, and ended its wait for the last op, if it waits.
  Picoseconds issued();
  Picoseconds now() const { return clocks_[std::size_t(Stream::compute)]; }  ///< compute is free
  Picoseconds everything_ended() const;  ///< all calls are over, and the host has issued them
  /// Returns when an op of a call that was run here ended.
  Picoseconds end_of(std::size_t call, std::size_t op) const { return calls_.at(call).ops[op]; }
  /// Returns when the last call posted its collectives that other stages take part in.
  const std::vector<Picoseconds>& posted() const { return posted_; }

 private:
  struct Times {
    std::vector<Picoseconds> ops;  ///< ends, by op; empty for a call that was not run here
    Picoseconds all = kLongAgo;
  };
  Picoseconds awaited(const Call& call) const;
  void wait_on_host();
  void delay(std::size_t index);
  Picoseconds end_of_op(const Op& op, Picoseconds ready, Picoseconds dispatch,
                        Picoseconds duration);

  const CostedProgram& costed_;
  std::array<Picoseconds, kStreams> clocks_;
  Picoseconds issued_, ended_ = kLongAgo;
  std::optional<std::pair<std::size_t, Picoseconds>> floor_;
  std::vector<Picoseconds> posted_;
  std::optional<Picoseconds> host_waits_until_;  ///< before the next op
  std::map<std::size_t, Times> calls_;
  KernelDelays delays_;  ///< caused by the communications of calls that were run
};

/// Longest paths through calls in a row, in max-plus algebra (time_bound.h). They begin when the
/// compute stream is free, or when the host has issued all calls before. They end when the last
/// call has computed, or when the host has issued it. Paths follow dependencies of the simulator,
/// so its other waits only lengthen them. A path is kLongAgo if nothing leads there, and at most
/// 2^60 ps, which is enough for a lower bound.
struct HostPaths {
  Picoseconds computes = kLongAgo;  ///< from the stream to the stream
  Picoseconds waited = kLongAgo;    ///< from the stream to the host
  Picoseconds follows = kLongAgo;   ///< from the host to the stream
  Picoseconds issued = kLongAgo;    ///< from the host to the host
  bool operator==(const HostPaths&) const = default;
};

/// Returns the paths of no call.
inline HostPaths no_call() { return {Picoseconds(), kLongAgo, kLongAgo, Picoseconds()}; }

/// Returns the paths through one call. `stream` has run this call alone, from a free stream.
HostPaths host_paths(const CostedProgram& costed, std::size_t call, CallPath& stream);

/// Returns a time later by a path.
Picoseconds after(Picoseconds time, Picoseconds path);

/// Returns the paths through `first` and then `second`, the second `count` times.
HostPaths then(HostPaths first, HostPaths second, std::int64_t count);

}  // namespace plimsoll
