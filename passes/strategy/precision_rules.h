// Precision rules limit the types of gradients, optimizer state and operands in a strategy.
#pragma once

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Checks the rules about types. With gradient_merge fused, buffers hold one micro-batch.
/// gradient_type computed is for 16-bit jobs. Types of optimizer state other than f32 are for
/// 16-bit jobs with a fused update, and such moments also need AdamW. With gather = use all
/// gathered parameters have one type. fp8 is for 16-bit jobs whose layers' sizes are multiples of
/// 16. fp8_parameters also needs an fp8 with copies that last for a step.
Verdict precision_is_legal(const Job& job, const Strategy& strategy);

/// Returns the type of masters in memory; moment_dtype() that of moments. A remainder is as wide as
/// bf16, and where there are no masters the update works on 16 bits.
DType master_dtype(const Strategy& strategy);
DType moment_dtype(const Strategy& strategy);
/// Returns the bytes of the scales of one moment; only block8 has some.
Bytes moment_scale_bytes(const Strategy& strategy, std::int64_t elements);

}  // namespace plimsoll
