// Ops and their events are used again once the GPU has passed them and their ticket was waited for.
#include "runtime/comm/nccl/posted_ops.h"

#include "base/error.h"
#include "runtime/cuda/device.h"

namespace plimsoll {

PostedOps::~PostedOps() {
  for (const NcclOp& op : ops_) {
    for (cudaEvent_t event : {op.posted, op.begin, op.end, op.wait})
      static_cast<void>(cudaEventDestroy(event));
  }
}

std::uint32_t PostedOps::add() {
  // Events of ops that are over are used again.
  first_of(in_flight_, &NcclOp::in_flight);
  first_of(awaited_, &NcclOp::awaited);
  if (free_.empty()) {
    free_.push_back(std::uint32_t(ops_.size()));
    NcclOp& op = ops_.emplace_back();
    check(cudaEventCreateWithFlags(&op.posted, cudaEventDisableTiming), "an event");
    check(cudaEventCreateWithFlags(&op.wait, cudaEventDisableTiming), "an event");
    check(cudaEventCreateWithFlags(&op.begin, cudaEventDefault), "an event");
    check(cudaEventCreateWithFlags(&op.end, cudaEventDefault), "an event");
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  NcclOp& op = ops_[index];
  op.waiting = true;
  op.number = ++count_;
  ++op.generation;
  return index;
}

void PostedOps::enqueued(std::uint32_t index) {
  ops_[index].in_flight = true;
  in_flight_.push_back(index);
}

void PostedOps::awaits(std::uint32_t index) {
  ops_[index].awaited = true;
  awaited_.push_back(index);
}

void PostedOps::waited(std::uint32_t index) {
  INVARIANT(ops_[index].waiting, "a ticket is waited for once");
  ops_[index].waiting = false;
  free_unused(index);
}

void PostedOps::free_unused(std::uint32_t index) {
  const NcclOp& op = ops_[index];
  if (!op.waiting && !op.in_flight && !op.awaited) free_.push_back(index);
}

const NcclOp* PostedOps::first_of(std::deque<std::uint32_t>& queue, bool NcclOp::*queued) {
  while (!queue.empty()) {
    const std::uint32_t index = queue.front();
    NcclOp& op = ops_[index];
    if (!is_reached(op.end, op.what)) return &op;
    op.*queued = false;
    queue.pop_front();
    free_unused(index);
  }
  return nullptr;
}

const NcclOp* PostedOps::oldest() { return first_of(in_flight_, &NcclOp::in_flight); }

const NcclOp* PostedOps::first_awaited() { return first_of(awaited_, &NcclOp::awaited); }

}  // namespace plimsoll
