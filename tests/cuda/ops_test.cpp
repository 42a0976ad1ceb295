// The kernels of the CUDA backend against the float64 reference, on the device that the program is
// linked for: the emulation, which shows that their sources are right, or a GPU.
#include <gtest/gtest.h>

#include <memory>

#include "runtime/cuda/backend.h"
#include "runtime/rank_device.h"
#include "tests/runtime/op_expectations.h"

namespace plimsoll {
namespace {

class CudaOp : public testing::TestWithParam<OpCase> {};

TEST_P(CudaOp, EqualsFloat64Reference) { expect_reference(*make_cuda_backend(0), GetParam()); }

TEST_P(CudaOp, LeavesInputsAloneAndRepeatsBitForBit) {
  expect_repeats(*make_cuda_backend(0), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Table, CudaOp, testing::ValuesIn(cases_of_all_types()), op_case_name);

INSTANTIATE_TEST_SUITE_P(Large, CudaOp, testing::ValuesIn(large_cases()), op_case_name);

}  // namespace
}  // namespace plimsoll
