// The meaning of every op, in float64 and in the plainest loops: the backends are compared with it.
#pragma once

#include "tests/runtime/op_cases.h"

namespace plimsoll {

/// Runs the case's op on `values` (by tensor, as OpCase::before).
void run_reference(const OpCase& c, Values& values);

}  // namespace plimsoll
