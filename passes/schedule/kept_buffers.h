// Kept buffers are memory that one call of a micro-batch leaves for another.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "graph/program.h"

namespace plimsoll {

/// Returns whether one call of a micro-batch leaves the memory of such a slot for another call.
inline bool crosses_calls(SlotKind kind) {
  switch (kind) {
    case SlotKind::input:
    case SlotKind::output:
    case SlotKind::saved:
    case SlotKind::saved_for_weights:
    case SlotKind::offloaded:
    case SlotKind::deferred:
    case SlotKind::carried:
    case SlotKind::input_gradient:
    case SlotKind::output_gradient:
      return true;
    default:
      return false;
  }
}

/// KeptBuffers has, for one instance of a chunk, the buffers that one micro-batch keeps between
/// calls.
struct KeptBuffers {
  std::array<std::optional<BufferId>, 9> buffers;  ///< from SlotKind::input to carried
  std::optional<BufferId>& operator[](SlotKind kind) {
    return buffers.at(std::size_t(kind) - std::size_t(SlotKind::input));
  }
};

inline bool has_slot(const Routine& routine, SlotKind kind) {
  return std::any_of(routine.slots.begin(), routine.slots.end(),
                     [&](const Slot& slot) { return slot.kind == kind; });
}

}  // namespace plimsoll
