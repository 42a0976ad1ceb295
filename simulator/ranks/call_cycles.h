// Call cycles: calls in the middle of a step that repeat the calls before them, micro-batch by
// micro-batch, and which of these cycles a shortened step skips.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/program.h"

namespace plimsoll {

/// Calls [first, first + count * length) are the same `length` calls, `count` times: they call the
/// same routines, and wait for calls that are as far before them. (alike_cycles.h asks for the same
/// memory.)
struct CallCycles {
  std::size_t first = 0, length = 0, count = 0;
  std::size_t end() const { return first + count * length; }
};

/// Returns the cycles around the middle of the step, each of `micro_batches`; their count is 0
/// where there are none. Every call is looked at once.
CallCycles call_cycles(const Program& program, std::int64_t micro_batches);

/// The step of many micro-batches has `cycles_left_out` more cycles in its middle, each of
/// `micro_batches_per_cycle`. A cycle is what every stage repeats: one micro-batch, or pp of them
/// where stages have several chunks.
struct FewerMicroBatches {
  std::int64_t micro_batches_per_cycle = 1;
  std::int64_t cycles_left_out = 0;
};

/// The cycles that every stage of a shorter step must repeat: some until ranks have found their
/// rhythm, some to show it, and more for stages that wait for each other. Where these cycles do not
/// show the rhythm, the whole step is simulated; in the searches of docs/results/speed.md that
/// happened in 5 of some 150 steps.
constexpr std::int64_t cycles_shown(std::int64_t stages) { return 8 + stages / 8; }

/// The cycles that a simulation skips. Either calls [from, to) are skipped, which are whole cycles
/// of `cycles`; or the Program already lacks `missing` cycles before the call `from`, which is
/// `to`.
struct SkippedCalls {
  std::size_t from = 0, to = 0;
  CallCycles cycles;
  std::size_t missing = 0;

  std::size_t calls() const { return to - from; }
  bool any() const { return calls() > 0 || missing > 0; }
  std::size_t cycle_count() const { return calls() / cycles.length + missing; }
  bool has(std::size_t call) const { return from <= call && call < to; }
  /// The place, among the calls that stay, of the call that stands for `earlier` where `call` waits
  /// for it. The cycles just before the skipped ones stand for them. kNothing where no call does:
  /// a call behind all cycles waits for a call early in them.
  std::size_t awaited(std::size_t call, std::size_t earlier) const;
  static constexpr std::size_t kNothing = ~std::size_t{0};
};

}  // namespace plimsoll
