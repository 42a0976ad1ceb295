// A routine as a max-plus map: from when it is issued, what it waits for and when its streams are
// free to when its streams are free again and its events fire. Composing the ops of a routine once
// and applying the map to each call is exact, because on Execution::streams every op begins at the
// latest of such times and takes a fixed duration (Baccelli et al., Synchronization and Linearity,
// 1992, chapter 1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// One op of a routine that nothing outside takes part in.
struct RoutineOp {
  std::uint32_t stream = 0;
  Picoseconds dispatch, duration;
  std::span<const std::uint32_t> waits;  ///< earlier ops of the routine
  /// The host waits until it has ended, and that much longer, before it issues the next.
  std::optional<Picoseconds> host_wait = std::nullopt;
};

struct RoutineMap {
  /// Inputs: the instant from which the host issues the call, the latest of the events that the
  /// call waits for, then the clocks of `streams`.
  static constexpr std::uint32_t kIssued = 0, kAwaited = 1, kClocks = 2;
  struct Term {
    std::uint32_t input = 0;
    Picoseconds delay;
  };

  std::vector<std::uint32_t> streams;  ///< ascending
  /// A row is the latest of its terms. Rows: the clocks of `streams` afterwards, then the events:
  /// all ops have ended, then those ops that were asked for, then, if the host waits for some op,
  /// that it is through.
  std::vector<Term> terms;
  std::vector<std::uint32_t> row_end;  ///< into terms
  std::uint32_t events = 0;
  bool host_waits = false;
  Picoseconds dispatch;  ///< host time to issue all of it

  std::size_t inputs() const { return kClocks + streams.size(); }
};

/// Waits of a call hold up the first op of each stream.
RoutineMap compose(std::span<const RoutineOp> ops, std::span<const std::uint32_t> event_ops);

/// rows[i] = the latest of input + delay over the terms of row i. Whether some row would be earlier
/// if the host had issued the call earlier.
bool apply(const RoutineMap& map, std::span<const Picoseconds> inputs, std::span<Picoseconds> rows);

}  // namespace plimsoll
