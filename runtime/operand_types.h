// Which types the operands of one op may have together; the same for every backend that computes.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"
#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// Values are all of one floating type but for operands that are f32 or i32 by rule. A reason names
/// `backend`.
Verdict check_operand_types(const Op& op, std::span<const Tensor> tensors,
                            std::string_view backend);

}  // namespace plimsoll
