// Call path: the longest paths through one call of a rank. Where devices have streams, they are
// read off the map of the call that the simulator applies (RoutineMap). Everything outside the call
// counts as over before, unless said otherwise. Leaving out earlier work and other ranks only
// shortens a longest path, so every time here is at most the simulated one.
#pragma once

#include <optional>
#include <vector>

#include "planner/bounds/least_costs.h"

namespace plimsoll {

/// Returns `count` times `one`. Throws InfeasibleError beyond the clock's range.
Picoseconds repeated(Picoseconds one, std::int64_t count);

/// Routines of one Program with the least times of their ops on the device and on the host.
struct CostedProgram {
  const Program* program = nullptr;
  std::vector<std::vector<Picoseconds>> durations, dispatch;  ///< [routine][op]
  std::vector<Picoseconds> computes;          ///< [routine], of ops on the compute stream, alone
  std::vector<std::vector<bool>> host_waits;  ///< [routine][op]: host_waits() in expand.h
  Picoseconds dispatch_call, host_wait;
  bool host_executes = false;
};
/// Costs the routines that calls use; others have no durations.
CostedProgram cost_of(const Program& program, const LeastCosts& costs);
/// Returns the host time to issue a call.
Picoseconds dispatch_of(const CostedProgram& costed, RoutineId routine);

/// Longest paths through calls in a row, in max-plus algebra (time_bound.h). They begin when the
/// compute stream is free, or when the host has issued all calls before. They end when the last
/// call has computed, or when the host has issued it. Paths follow dependencies of the simulator,
/// so its other waits only lengthen them. A path is absent if nothing leads there, and at most 2^60
/// ps, which is enough for a lower bound.
struct HostPaths {
  std::optional<Picoseconds> computes;  ///< from the stream to the stream
  std::optional<Picoseconds> waited;    ///< from the stream to the host
  std::optional<Picoseconds> follows;   ///< from the host to the stream
  std::optional<Picoseconds> issued;    ///< from the host to the host
  bool operator==(const HostPaths&) const = default;
};

/// Returns the paths of no call.
inline HostPaths no_call() { return {Picoseconds(), {}, {}, Picoseconds()}; }

/// The paths through one call. They begin when the compute stream is free, or the host where it
/// executes. Whatever an op on another stream waits for ended long ago, except that the call
/// before computes until then if a call begins elsewhere.
struct CallPaths {
  Picoseconds span;     ///< until the same stream, or the host, is free again
  Picoseconds written;  ///< until an op ended
  HostPaths host;       ///< without meaning where the host executes
};
/// Returns the paths through a call of the routine, and the path until the op `written`. A host
/// that executes begins an op behind those before it and behind the communications that the op
/// waits for.
CallPaths call_paths(const CostedProgram& costed, RoutineId routine, std::size_t written);

/// Returns a time later by a path; nothing if one of them is absent.
std::optional<Picoseconds> after(std::optional<Picoseconds> time, std::optional<Picoseconds> path);

/// Returns the paths through `first` and then `second`, the second `count` times.
HostPaths then(HostPaths first, HostPaths second, std::int64_t count);

}  // namespace plimsoll
