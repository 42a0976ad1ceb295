// Names these buffers, and says what they are for.
#include "passes/schedule/crossing_buffers.h"

#include <string>

#include "base/error.h"
#include "passes/schedule/kept_buffers.h"

namespace plimsoll {

BufferId CrossingBuffers::add(const Slot& slot, const Action& action, std::size_t instance) {
  const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
  const auto add = [&](const char* name, TensorRole role) {
    return build_.add_buffer(name, role, slot.bytes, build_.next_call());
  };
  switch (slot.kind) {
    case SlotKind::output:
      if (instance + 1 < end) return add("border", border_role(instance + 1, SlotKind::input));
      if (const auto reader = borders_.reader(action))
        return add("border", border_role(reader->first, SlotKind::input));
      return add("sent_activation", TensorRole::communication);
    case SlotKind::input_gradient:
      if (instance > begin)
        return add("border_gradient", border_role(instance - 1, SlotKind::output_gradient));
      if (const auto reader = borders_.reader(action))
        return add("border_gradient", border_role(reader->second - 1, SlotKind::output_gradient));
      return add("sent_gradient", TensorRole::communication);
    case SlotKind::saved:
      return add("saved", TensorRole::saved);
    case SlotKind::saved_for_weights:
      return add("saved_for_weights", TensorRole::saved);
    case SlotKind::offloaded:
      return add("offloaded", TensorRole::saved);
    case SlotKind::deferred:
      return add("deferred", TensorRole::saved);
    case SlotKind::carried:
      return add("carried", TensorRole::activation);
    default:
      INVARIANT(false, "slot " + std::string(to_text(slot.kind)) + " is written by nobody");
  }
}

/// Returns the role of a border. A border that the next instance reads again later is saved for it.
TensorRole CrossingBuffers::border_role(std::size_t reader, SlotKind kind) const {
  const CutBlock& cut = cuts_.cut_of(reader);
  const bool late = has_slot(cut.weight_gradient, kind) ||
                    (kind == SlotKind::input && has_slot(cut.backward, kind));
  return late ? TensorRole::saved : TensorRole::activation;
}

}  // namespace plimsoll
