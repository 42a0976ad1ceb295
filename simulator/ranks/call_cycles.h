// Call cycles: calls in the middle of a step that repeat the calls before them, micro-batch by
// micro-batch, and which of these cycles a shortened step skips.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/program.h"

namespace plimsoll {

/// Calls [first, first + count * length) are the same `length` calls, `count` times: they call the
/// same routines, and wait for calls that are as far before them. (alike_cycles.h also asks for the
/// same memory.)
struct CallCycles {
  std::size_t first = 0, length = 0, count = 0;
  std::size_t end() const { return first + count * length; }
};

/// Returns the cycles around the middle of the step, each of `micro_batches`; their count is 0
/// where there are none. Every call is looked at once.
CallCycles call_cycles(const Program& program, std::int64_t micro_batches);

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
