// Call cycles: calls in the middle of a step that repeat those before, micro-batch by micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/program.h"

namespace plimsoll {

/// Calls [first, first + count * length) are `count` times the same `length` calls: of the same
/// routines, each waiting for what is as far before it. alike_cycles.h asks for more, the same
/// memory.
struct CallCycles {
  std::size_t first = 0, length = 0, count = 0;
  std::size_t end() const { return first + count * length; }
};

/// The cycles around the middle of the step, each of so many micro-batches; a count of 0 where
/// there are none. Looks at every call once.
CallCycles call_cycles(const Program& program, std::int64_t micro_batches);

/// Calls [from, to) are left out, whole cycles of `cycles`. Or the Program is one of fewer
/// micro-batches and stands for one with `absent` more cycles before `from`, which is `to`.
struct LeftOut {
  std::size_t from = 0, to = 0;
  CallCycles cycles;
  std::size_t absent = 0;

  std::size_t calls() const { return to - from; }
  bool any() const { return calls() > 0 || absent > 0; }
  std::size_t left_out_cycles() const { return calls() / cycles.length + absent; }
  bool has(std::size_t call) const { return from <= call && call < to; }
  /// Where an earlier call that `call` waits for stands among those that are left: what is left out
  /// is stood for by as many cycles before. kNothing where nothing stands for it: a call after all
  /// cycles waits for one early in them.
  std::size_t awaited(std::size_t call, std::size_t earlier) const;
  static constexpr std::size_t kNothing = ~std::size_t{0};
};

}  // namespace plimsoll
