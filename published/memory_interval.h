// Memory interval: how far the predicted memory of a rank may be off.
#pragma once

#include "models/framework/framework.h"
#include "published/published_run.h"

namespace plimsoll {

/// The memory that a rank was predicted to take.
struct PredictedMemory {
  Bytes allocated;  ///< of tensors
  Bytes lasting;    ///< of these: parameters, their gradients and state, whose sizes are known
  Bytes reserved;   ///< of the driver, for tensors
  Bytes outside;    ///< beside tensors: context and communicators
};

/// Relative half width of the 90 % interval of one kind of memory. 0 for an arena, which holds what
/// the Program says. Else what lasts is known, and what comes and goes as well as the kernels are
/// that make it; an allocator keeps more than it hands out, by an amount that depends on the
/// order of frees; of context and communicators little is published. docs/how-it-works/intervals.md
/// says what each was taken from; independent of each other.
double memory_half_width(MemoryKind kind, const Framework& framework,
                         const PredictedMemory& memory);

}  // namespace plimsoll
