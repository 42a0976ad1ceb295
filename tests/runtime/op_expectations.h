// The expectations that every backend's ops are held to.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/backend.h"
#include "tests/runtime/op_cases.h"

namespace plimsoll {

/// The table in f32, then every case that has values in the other types.
std::vector<OpCase> cases_of_all_types();
/// For kernels that share work out: rows of several warps, partial sums of several blocks, chunks
/// of an arena, and widths that allow no access of 16 bytes. In f32 and bf16, without products.
std::vector<OpCase> large_cases();

/// The backend supports the case, and its outputs are those of the float64 reference up to the unit
/// roundoff of their types and what f32 arithmetic adds.
void expect_reference(Backend& backend, const OpCase& c);

/// Two runs give the same bits, and inputs that are no outputs stay as they are.
void expect_repeats(Backend& backend, const OpCase& c);

/// For INSTANTIATE_TEST_SUITE_P.
std::string op_case_name(const testing::TestParamInfo<OpCase>& info);

}  // namespace plimsoll
