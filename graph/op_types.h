// Which operands of an op are f32 whatever the type of its values. What mixed precision leaves
// alone and what kernels read and write, said once.
#pragma once

#include <cstddef>

#include "graph/op.h"

namespace plimsoll {

/// Statistics of rows, log-sum-exp, the loss and the step's scalars; masters and optimizer state
/// (Micikevicius et al. 2018, arXiv 1710.03740, section 3.1 and 3.3).
bool input_is_f32(const Op& op, std::size_t i);
/// These, and gradients of parameters: they sum over micro-batches.
bool output_is_f32(const Op& op, std::size_t i);

}  // namespace plimsoll
