// A RangeRoutine has one op over ranges of memory, with one slot for each. The schedule adds such
// routines between those of the blocks.
#pragma once

#include <string>
#include <utility>

#include "graph/program.h"

namespace plimsoll {

struct RangeRoutine {
  Routine routine;

  RangeRoutine(std::string name, OpKind kind, OpParams params = {}) {
    routine.name = std::move(name);
    routine.phase = Phase::backward;
    Op op;
    op.kind = kind;
    op.phase = Phase::backward;
    op.params = std::move(params);
    routine.ops = {op};
  }

  TensorId range(const char* name, SlotKind slot, std::int64_t elements, DType type) {
    Tensor tensor;
    tensor.name = name;
    tensor.role = TensorRole::gradient;
    tensor.dtype = type;
    tensor.shape = {elements};
    routine.slots.push_back({slot, bytes_of(tensor)});
    routine.places.push_back({routine.tensors.size(), {}});
    routine.tensors.push_back(std::move(tensor));
    return TensorId(routine.tensors.size() - 1);
  }
};

}  // namespace plimsoll
