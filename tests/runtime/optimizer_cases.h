// The op cases of the once-per-step ops, and their float64 references.
#pragma once

#include <vector>

#include "tests/runtime/op_cases.h"

namespace plimsoll {

std::vector<OpCase> optimizer_cases(const OpSizes& sizes);

/// One update of ones by about 1e-4, which is less than half the distance of neighbours in bf16.
/// The tensor has rows of 64, of which the rank has the last of so many parts.
OpCase small_update(std::int64_t count, bool stochastic, std::int64_t parts = 1);

/// Whether this file's reference knows the kind; computes it.
bool run_optimizer_reference(const OpCase& c, Values& values);

}  // namespace plimsoll
