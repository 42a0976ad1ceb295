// Adds the calls that copy weights, and their memory.
#include "passes/schedule/weight_copies.h"

#include <utility>

namespace plimsoll {

void WeightCopies::add_instance(const Routine& copies) {
  copies_.push_back(&copies);
  offsets_.push_back(bytes_);
  for (const Slot& slot : copies.slots) {
    if (slot.kind == SlotKind::weight_copies) bytes_ += round_up(slot.bytes, kBlockAlignment);
  }
}

void WeightCopies::add_buffer() {
  if (bytes_ == Bytes(0)) return;
  buffer_ = build_.add_persistent("weight_copies", TensorRole::parameter, bytes_);
}

void WeightCopies::call(std::size_t instance, std::int64_t micro_batch,
                        const std::vector<Wait>& waits,
                        const std::function<Binding(const Slot&)>& bind) {
  const Routine& copies = *copies_[instance];
  if (copies.ops.empty()) return;
  const auto [found, fresh] = routines_.try_emplace(&copies);
  if (fresh) found->second = build_.add_routine(copies);
  std::vector<Binding> bindings;
  for (const Slot& slot : copies.slots) bindings.push_back(bind(slot));
  build_.add_call(found->second, {}, micro_batch, std::move(bindings), waits);
}

}  // namespace plimsoll
