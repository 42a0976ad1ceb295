// Precision rules limit the types of gradients, optimizer state and operands in a strategy.
#pragma once

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Checks these rules. gradient_merge fused: buffers hold one micro-batch. gradient_type computed:
/// 16-bit jobs in which gradients are reduced once per step. Optimizer state in other types than
/// f32: 16-bit jobs with a fused update; moments also need AdamW. gather = use: one type for the
/// gathered parameters. fp8: 16-bit jobs whose layers' sizes are multiples of 16; fp8_parameters
/// also needs fp8 with copies that last for a step.
Verdict precision_is_legal(const Job& job, const Strategy& strategy);

/// Returns the type of masters in memory; moment_dtype() that of moments. A remainder is as wide as
/// bf16.
DType master_dtype(const Strategy& strategy);
DType moment_dtype(const Strategy& strategy);

}  // namespace plimsoll
