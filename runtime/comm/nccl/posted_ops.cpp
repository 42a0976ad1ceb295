// Ops and their events are used again once the GPU has passed them and their ticket was waited for.
#include "runtime/comm/nccl/posted_ops.h"

#include "base/error.h"
#include "runtime/cuda/device.h"

namespace plimsoll {

PostedOps::~PostedOps() {
  for (const PostedOp& op : ops_) {
    for (cudaEvent_t event : {op.posted, op.begin, op.end})
      static_cast<void>(cudaEventDestroy(event));
  }
}

std::uint32_t PostedOps::add() {
  oldest();
  if (free_.empty()) {
    free_.push_back(std::uint32_t(ops_.size()));
    PostedOp& op = ops_.emplace_back();
    check(cudaEventCreateWithFlags(&op.posted, cudaEventDisableTiming), "an event");
    check(cudaEventCreateWithFlags(&op.begin, cudaEventDefault), "an event");
    check(cudaEventCreateWithFlags(&op.end, cudaEventDefault), "an event");
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  PostedOp& op = ops_[index];
  op.waiting = true;
  op.number = ++count_;
  ++op.generation;
  return index;
}

void PostedOps::enqueued(std::uint32_t index) {
  ops_[index].in_flight = true;
  in_flight_.push_back(index);
}

void PostedOps::waited(std::uint32_t index) {
  INVARIANT(ops_[index].waiting, "a ticket is waited for once");
  ops_[index].waiting = false;
  free_unused(index);
}

void PostedOps::free_unused(std::uint32_t index) {
  const PostedOp& op = ops_[index];
  if (!op.waiting && !op.in_flight) free_.push_back(index);
}

const PostedOp* PostedOps::oldest() {
  while (!in_flight_.empty()) {
    const std::uint32_t index = in_flight_.front();
    if (!is_reached(ops_[index].end, ops_[index].what)) return &ops_[index];
    ops_[index].in_flight = false;
    in_flight_.pop_front();
    free_unused(index);
  }
  return nullptr;
}

}  // namespace plimsoll
