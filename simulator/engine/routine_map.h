// Routine map: a whole call as one max-plus map. Inputs are the times at which the call is issued,
// its waits have ended, and its streams are free. Outputs are the times at which its streams are
// free again and its events fire. The ops of a routine are composed once, and the map is applied to
// each call. That is exact, because on Execution::streams an op begins at the latest of some times
// and takes a fixed duration (Baccelli et al., Synchronization and Linearity, 1992, chapter 1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// One op of a routine in which no other rank takes part.
struct RoutineOp {
  std::uint32_t stream = 0;
  Picoseconds dispatch, duration;
  std::span<const std::uint32_t> waits;  ///< earlier ops of the routine
  /// The host waits for the op's end, and this much longer, before it issues the next op.
  std::optional<Picoseconds> host_wait = std::nullopt;
};

struct RoutineMap {
  /// Inputs: when the host turns to the call, the latest event that the call waits for, and then
  /// when each of `streams` is free.
  static constexpr std::uint32_t kIssued = 0, kAwaited = 1, kClocks = 2;
  struct Term {
    std::uint32_t input = 0;
    Picoseconds delay;
  };
  struct Row {
    std::uint32_t index = 0;
    Picoseconds later;
  };
  /// Rows that are a fixed time apart whatever the inputs. Each is a fixed time later than the
  /// latest of the bundle's terms. Most rows of a routine lie in one bundle, since its last ops all
  /// follow one op before them.
  struct Bundle {
    std::uint32_t term_end = 0, row_end = 0;  ///< where its terms, and its rows, end
  };

  std::vector<std::uint32_t> streams;  ///< ascending
  /// Rows: when each of `streams` is free again; then the call's events. These are the end of all
  /// ops, the ends of the ops that were asked for, and the end of the host's waits, if it waits.
  std::vector<Bundle> bundles;
  std::vector<Term> terms;
  std::vector<Row> rows;  ///< each row once, in the order of bundles
  std::uint32_t events = 0;
  bool host_waits = false;
  Picoseconds dispatch;  ///< host time to issue all of it

  std::size_t inputs() const { return kClocks + streams.size(); }
};

/// The composition of a routine's ops for inputs that are not known yet. The waits of a call hold
/// the first op of each stream.
class Composition {
 public:
  explicit Composition(std::span<const RoutineOp> ops);
  /// Returns the map for calls of which others await the ends of `event_ops`: these are events of
  /// the map, too.
  RoutineMap map(std::span<const std::uint32_t> event_ops) const;

 private:
  /// A time as its delay after each input; absent if it does not depend on that input.
  using Delays = std::span<std::optional<Picoseconds>>;
  Delays clock(std::size_t stream) { return std::span(clocks_).subspan(stream * inputs_, inputs_); }
  Delays end(std::size_t op) { return std::span(ends_).subspan(op * inputs_, inputs_); }
  void run(std::span<const RoutineOp> ops);

  RoutineMap map_;  ///< without rows
  std::size_t inputs_ = 0;
  /// By stream, by op, and of the host: how much later than each input, if it depends on that.
  std::vector<std::optional<Picoseconds>> clocks_, ends_, host_;
};

/// Composes a routine of which one map is needed.
inline RoutineMap compose(std::span<const RoutineOp> ops,
                          std::span<const std::uint32_t> event_ops) {
  return Composition(ops).map(event_ops);
}

/// Sets rows[i] to row i for these inputs. Returns whether some row would be earlier if the host
/// had issued the call earlier.
inline bool apply(const RoutineMap& map, const Picoseconds* inputs, Picoseconds* rows) {
  const RoutineMap::Term* term = map.terms.data();
  const RoutineMap::Row* row = map.rows.data();
  bool host_bound = false;
  for (const RoutineMap::Bundle& bundle : map.bundles) {
    const RoutineMap::Term* const term_end = map.terms.data() + bundle.term_end;
    const RoutineMap::Row* const row_end = map.rows.data() + bundle.row_end;
    Picoseconds issued(-1), latest;
    // kIssued is the first input, so its term, if there is one, is the first term.
    if (term != term_end && term->input == RoutineMap::kIssued) {
      issued = inputs[RoutineMap::kIssued] + term->delay;
      ++term;
    }
    for (; term != term_end; ++term) {
      const Picoseconds time = inputs[term->input] + term->delay;
      latest = time < latest ? latest : time;
    }
    host_bound = host_bound || issued > latest;
    latest = issued < latest ? latest : issued;
    for (; row != row_end; ++row) rows[row->index] = latest + row->later;
  }
  return host_bound;
}

}  // namespace plimsoll
