// Memory interval: how far the predicted memory of a rank may be off.
#pragma once

#include "models/framework.h"
#include "models/published_run.h"

namespace plimsoll {

/// Relative half width of the 90 % interval of one kind of memory, where `reserved` is taken for
/// tensors and `outside` beside them. 0 for an arena, which holds what the Program says; else
/// what replays were off by on published runs, fitted from these: allocated by 3 % (Megatron-LM's
/// own tests, SimuMax), reserved by 7 % (SimuMax, BigScience), and context and communicators, of
/// which little is published, by 40 %; independent of each other.
double memory_half_width(MemoryKind kind, const Framework& framework, Bytes reserved,
                         Bytes outside);

}  // namespace plimsoll
