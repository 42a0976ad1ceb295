// The op cases of the once-per-step ops, and their float64 references.
#pragma once

#include <vector>

#include "tests/runtime/op_cases.h"

namespace plimsoll {

std::vector<OpCase> optimizer_cases(const OpSizes& sizes);

/// Whether this file's reference knows the kind; computes it.
bool run_optimizer_reference(const OpCase& c, Values& values);

}  // namespace plimsoll
