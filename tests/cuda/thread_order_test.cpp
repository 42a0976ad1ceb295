// Every kernel with the threads of a block run in one order and in the other between barriers: a
// race would show. Only the emulation can do that.
#include <gtest/gtest.h>

#include "device_emulation.h"
#include "runtime/cuda/backend.h"
#include "tests/runtime/attention_cases.h"
#include "tests/runtime/op_expectations.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {
namespace {

using cuda_on_cpu::ThreadOrder;

class CudaThreadOrder : public testing::TestWithParam<OpCase> {};

TEST_P(CudaThreadOrder, DoesNotDependOnTheOrderOfThreads) {
  const auto backend = make_cuda_backend(0);
  cuda_on_cpu::set_thread_order(ThreadOrder::descending);
  const Values backwards = run_case(*backend, GetParam());
  cuda_on_cpu::set_thread_order(ThreadOrder::ascending);
  const Values forwards = run_case(*backend, GetParam());
  for (TensorId id : GetParam().op.outputs) {
    EXPECT_EQ(forwards[id.index()], backwards[id.index()]) << GetParam().tensors[id.index()].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, CudaThreadOrder, testing::ValuesIn(cases_of_all_types()),
                         op_case_name);
INSTANTIATE_TEST_SUITE_P(Large, CudaThreadOrder, testing::ValuesIn(large_cases()), op_case_name);
INSTANTIATE_TEST_SUITE_P(Attention, CudaThreadOrder, testing::ValuesIn(attention_cases()),
                         op_case_name);

}  // namespace
}  // namespace plimsoll
