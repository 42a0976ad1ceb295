// The expectations that every backend's ops are held to.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "tests/runtime/op_cases.h"

namespace plimsoll {

/// A case that tests hold together: gtest copies the parameters of tests several times, and the
/// values of all cases are gigabytes.
using SharedCase = std::shared_ptr<const OpCase>;
std::vector<SharedCase> shared(std::vector<OpCase> cases);

/// The table in f32, then every case that has values in the other types.
std::vector<OpCase> cases_of_all_types();
/// The cases of ops that differ within examples, with some of the latter, in all types.
std::vector<OpCase> example_cases();
/// For kernels that share work out: rows of several warps, partial sums of several blocks, chunks
/// of an arena, and widths that allow no access of 16 bytes. Each in f32 or bf16, without products.
std::vector<OpCase> large_cases();

/// The backend supports the case, and its outputs are those of the float64 reference up to the unit
/// roundoff of their types and what f32 arithmetic adds. Inputs that are no outputs stay as they
/// are, and a second run gives the same bits.
void expect_reference(Backend& backend, const OpCase& c);

/// For INSTANTIATE_TEST_SUITE_P.
std::string op_case_name(const testing::TestParamInfo<SharedCase>& info);

}  // namespace plimsoll
