// The ops of the critical rank's step, in the shape that accounts of the step read.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "graph/op.h"

namespace plimsoll {

/// One op of a step. A step has millions of them, so it names neither its routine nor its layer.
struct CriticalOp {
  Picoseconds posted;  ///< a communication: when this rank posted it
  Picoseconds begin;   ///< a communication: when the last participant had arrived
  Picoseconds end;
  OpKind kind = OpKind::add;
  Stream stream = Stream::compute;
  Phase phase = Phase::forward;
  std::uint16_t group = 0;  ///< index of the group that it communicates over; 0: a local op
  bool operator==(const CriticalOp&) const = default;
};
static_assert(sizeof(CriticalOp) == 32);

}  // namespace plimsoll
