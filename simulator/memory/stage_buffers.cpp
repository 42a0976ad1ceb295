// Keeps the buffers that a stage receives into, and the outputs that it holds to the end of a step.
#include "simulator/memory/stage_buffers.h"

namespace plimsoll {

StageBuffers::StageBuffers(const Program& program, const Framework& framework, TensorNames& names,
                           TensorBlocks& blocks)
    : program_(program),
      blocks_(blocks),
      active_(framework.memory.borders == BorderMemory::for_each && program.grid[Axis::pp] > 1),
      received_(program.buffers.size()),
      sent_(program.buffers.size()) {
  if (!active_) return;
  merged_name_ = names.of("merged_outputs");
  for (const Buffer& buffer : program.buffers) names_.push_back(names.of(buffer.name));
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind != OpKind::send && op.kind != OpKind::recv) continue;
      const std::size_t buffer = call.bindings[0].buffer.index();
      if (op.kind == OpKind::recv) received_[buffer] = true;
      if (op.kind == OpKind::send && routine.phase == Phase::forward) sent_[buffer] = true;
    }
  }
}

void StageBuffers::begin() {
  if (!active_) return;
  for (std::size_t b = 0; b < received_.size(); ++b) {
    if (received_[b])
      blocks_.take(program_.buffers[b].bytes, names_[b], TensorRole::communication, 0);
  }
}

bool StageBuffers::keeps(std::size_t buffer, TensorBlocks::Block block) {
  if (!active_ || !sent_[buffer]) return false;
  kept_.push_back(block);
  return true;
}

bool StageBuffers::keeps_output(TensorBlocks::Block block, Bytes bytes) {
  if (!active_) return false;
  kept_.push_back(block);
  outputs_ += bytes;
  return true;
}

void StageBuffers::before_call(std::size_t call) {
  if (outputs_ == Bytes() || program_.at(program_.calls[call].routine).phase != Phase::optimizer)
    return;
  blocks_.give(blocks_.take(outputs_, merged_name_, TensorRole::activation, 0));
  outputs_ = Bytes();
}

void StageBuffers::end_step() {
  blocks_.give(kept_);
  outputs_ = Bytes();
}

}  // namespace plimsoll
