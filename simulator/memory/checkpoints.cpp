// Finds the borders that are checkpoints, and their bytes on the device.
#include "simulator/memory/checkpoints.h"

#include <algorithm>

namespace plimsoll {
namespace {

bool repeats(const Routine& routine) {
  return std::any_of(routine.ops.begin(), routine.ops.end(),
                     [](const Op& op) { return op.phase == Phase::recompute; });
}

}  // namespace

Checkpoints::Checkpoints(const Program& program, const Framework& framework)
    : program_(program), memory_(framework.memory.checkpoints) {
  if (memory_ == CheckpointMemory::on_device) return;
  buffers_.resize(program.buffers.size());
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    if (!repeats(routine)) continue;
    for (std::size_t slot = 0; slot < routine.slots.size(); ++slot) {
      const BufferId buffer = call.bindings[slot].buffer;
      if (routine.slots[slot].kind == SlotKind::input &&
          program.at(buffer).role == TensorRole::saved)
        buffers_[buffer.index()] = true;
    }
  }
}

bool Checkpoints::ends_forward(std::size_t call, std::size_t slot) const {
  const Routine& routine = program_.at(program_.calls[call].routine);
  return routine.phase == Phase::forward && routine.slots[slot].kind == SlotKind::input;
}

Bytes Checkpoints::part(Bytes bytes) const {
  if (memory_ == CheckpointMemory::on_host) return Bytes();
  return Bytes(bytes.count() / program_.grid[Axis::mp]);
}

}  // namespace plimsoll
