// The rules of a strategy about types: of gradients, of the optimizer's state, of operands.
#pragma once

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// gradient_merge fused where its buffers hold one micro-batch; gradient_type computed in 16-bit
/// jobs, where gradients are reduced once per step; other types of optimizer state than f32 in
/// 16-bit jobs with a fused update, of AdamW for the moments; one type for what is gathered where
/// it is used; fp8 in 16-bit jobs whose layers' sizes are multiples of 16, and parameters kept in
/// 8 bits where it has copies that last.
Verdict precision_is_legal(const Job& job, const Strategy& strategy);

/// The type of masters and moments in memory. A remainder is as wide as bf16.
DType master_dtype(const Strategy& strategy);
DType moment_dtype(const Strategy& strategy);

}  // namespace plimsoll
