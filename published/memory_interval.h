// A memory interval says how far the predicted memory of a rank may be off.
#pragma once

#include "models/framework/framework.h"
#include "published/published_run.h"

namespace plimsoll {

/// The memory that a rank was predicted to take.
struct PredictedMemory {
  Bytes allocated;  ///< bytes of tensors
  /// the part of these whose sizes are known: parameters, their gradients and state
  Bytes lasting;
  Bytes reserved;  ///< bytes that the allocator takes from the driver for tensors
  Bytes outside;   ///< bytes beside tensors: context and communicators
};

/// Returns the relative half width of the 90 % interval of one kind of memory. It is 0 for an
/// arena, which holds exactly the Program's memory. For other allocators three independent errors
/// add up. Memory that lasts is known, and temporary memory is known as well as the kernels that
/// need it. An allocator keeps more than the blocks in use, by an amount that depends on the order
/// of frees. Little is published about contexts and communicators. docs/how-it-works/intervals.md
/// says where each number comes from.
double memory_half_width(MemoryKind kind, const Framework& framework,
                         const PredictedMemory& memory);

}  // namespace plimsoll
