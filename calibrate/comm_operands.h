// Operands of the communications to be timed, and what must arrive. Internal to calibrate.
#pragma once

#include <cstdint>
#include <span>

#include "base/units.h"
#include "calibrate/crew.h"
#include "graph/op.h"
#include "runtime/communicator.h"

namespace plimsoll {

/// What one rank works on: its operands (f32), which rotate over `footprint` bytes, and the other
/// memory that producing them touches.
class CommOperands {
 public:
  CommOperands(Bytes payload, Bytes footprint);

  /// The i-th operand, freshly written by the member `index` of its group.
  std::span<float> produce(std::int64_t i, std::int64_t index);

 private:
  Bytes payload_;
  std::int64_t sets_;
  Bytes beside_;
  Pool pool_, other_;
};

/// Whether the operand of member `index` of `size` holds what the communication makes of what
/// produce() wrote on all members; of a send, whose members are sender and receiver: what the
/// receiver got.
bool arrived(OpKind kind, std::int64_t index, std::int64_t size, std::span<const float> operand);

/// Over the group of axis dp; of a send: to the next stage from member 0, from the one before on
/// member 1.
Communicator::Ticket post_bench(Communicator& communicator, OpKind kind, std::int64_t index,
                                std::span<float> operand);

}  // namespace plimsoll
