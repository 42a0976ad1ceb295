// Expert kernels: what a framework's kernels for experts do beyond the ops of the Program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/units.h"
#include "graph/op.h"
#include "graph/tensor.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns the time of the kernels of a product for all experts but one, if each expert has a
/// kernel (Framework::kernels.products.experts_apart). Other ops have none.
Seconds other_experts(const Framework& framework, const Op& op, std::int64_t experts);

/// Returns the host time to issue these kernels, or to add biases for all experts but one, on a
/// core of speed 1.
Seconds issue_of_other_experts(const Framework& framework, const Op& op,
                               std::span<const Tensor> tensors);

/// Returns the bytes that a grouped_bias_add or its backward moves if each expert has a kernel, as
/// in Megatron-LM: core/transformer/moe/experts.py, TEGroupedMLP. Absent for other ops and
/// frameworks.
std::optional<Bytes> moved_by_bias_apart(const Framework& framework, const Op& op,
                                         std::span<const Tensor> tensors);

/// Returns the time of an exchange of rows by kernels that send a token once to each rank
/// (Framework::parallelism.sends_tokens_once_per_node). `bytes` is the time of the bytes, `rows`
/// the number of rows of a token.
Seconds with_work_of_tokens(const Op& op, std::span<const Tensor> tensors, std::int64_t rows,
                            Seconds bytes);

/// Returns whether the rows of an exchange are sorted by a kernel
/// (Framework::parallelism.sorts_exchanged_rows). With one expert on a rank nothing is left to sort
/// (Megatron-LM core/transformer/moe/token_dispatcher.py: num_local_experts > 1).
bool sorts_rows(const Framework& framework, const Op& op, std::span<const Tensor> tensors);

}  // namespace plimsoll
