// These rules say which types the operands of one op may have together. All backends that compute
// share them.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"
#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// Checks that all values have one floating type, except operands that are always f32 or i32, or
/// may be of any type of their own; masters are f32. A reason names `backend`.
Verdict check_operand_types(const Op& op, std::span<const Tensor> tensors,
                            std::string_view backend);

}  // namespace plimsoll
