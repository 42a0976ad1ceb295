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
  struct Row {
    std::uint32_t index = 0;
    Picoseconds later;
  };
  /// Rows that are a fixed time apart whatever the inputs: each is so much later than the latest of
  /// the terms. Most rows of a routine are: what its last ops give follows from one op before them.
  struct Bundle {
    std::uint32_t term_end = 0, row_end = 0;  ///< into terms, into rows
  };

  std::vector<std::uint32_t> streams;  ///< ascending
  /// Rows: the clocks of `streams` afterwards, then the events: all ops have ended, then those ops
  /// that were asked for, then, if the host waits for some op, that it is through.
  std::vector<Bundle> bundles;
  std::vector<Term> terms;
  std::vector<Row> rows;  ///< each once
  std::uint32_t events = 0;
  bool host_waits = false;
  Picoseconds dispatch;  ///< host time to issue all of it

  std::size_t inputs() const { return kClocks + streams.size(); }
};

/// A routine's ops run one after the other for inputs that are not known yet. Waits of a call hold
/// up the first op of each stream.
class Composition {
 public:
  explicit Composition(std::span<const RoutineOp> ops);
  /// With the ends of these ops among its events.
  RoutineMap map(std::span<const std::uint32_t> event_ops) const;

 private:
  /// Delays from each input; negative where a time does not depend on it.
  using Delays = std::span<Picoseconds>;
  Delays clock(std::size_t stream) { return std::span(clocks_).subspan(stream * inputs_, inputs_); }
  Delays end(std::size_t op) { return std::span(ends_).subspan(op * inputs_, inputs_); }
  void run(std::span<const RoutineOp> ops);

  RoutineMap map_;  ///< without rows
  std::size_t inputs_ = 0;
  std::vector<Picoseconds> clocks_, ends_, host_;  ///< by stream, by op; and of the host
};

/// Composes the map of a routine that is mapped in one way only.
inline RoutineMap compose(std::span<const RoutineOp> ops,
                          std::span<const std::uint32_t> event_ops) {
  return Composition(ops).map(event_ops);
}

/// rows[i] = row i, for these inputs. Whether some row would be earlier if the host had issued the
/// call earlier.
inline bool apply(const RoutineMap& map, const Picoseconds* inputs, Picoseconds* rows) {
  const RoutineMap::Term* term = map.terms.data();
  const RoutineMap::Row* row = map.rows.data();
  bool held_up = false;
  for (const RoutineMap::Bundle& bundle : map.bundles) {
    const RoutineMap::Term* const term_end = map.terms.data() + bundle.term_end;
    const RoutineMap::Row* const row_end = map.rows.data() + bundle.row_end;
    Picoseconds issued(-1), latest;
    // It is the first input, so the first term where there is one.
    if (term != term_end && term->input == RoutineMap::kIssued) {
      issued = inputs[RoutineMap::kIssued] + term->delay;
      ++term;
    }
    for (; term != term_end; ++term) {
      const Picoseconds time = inputs[term->input] + term->delay;
      latest = time < latest ? latest : time;
    }
    held_up = held_up || issued > latest;
    latest = issued < latest ? latest : issued;
    for (; row != row_end; ++row) rows[row->index] = latest + row->later;
  }
  return held_up;
}

}  // namespace plimsoll
