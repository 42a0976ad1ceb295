// The kernels of the CUDA backend against the float64 reference, on the device that the program is
// linked for: the emulation, which shows that their sources are right, or a GPU.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/backend.h"
#include "runtime/rank_device.h"
#include "tests/runtime/op_expectations.h"
#include "tests/runtime/op_runner.h"
#include "tests/runtime/optimizer_cases.h"

namespace plimsoll {
namespace {

class CudaOp : public testing::TestWithParam<SharedCase> {};

TEST_P(CudaOp, EqualsFloat64ReferenceAndRepeatsBitForBit) {
  expect_reference(*make_cuda_backend(0), *GetParam());
}

INSTANTIATE_TEST_SUITE_P(Table, CudaOp, testing::ValuesIn(shared(cases_of_all_types())),
                         op_case_name);

INSTANTIATE_TEST_SUITE_P(Examples, CudaOp, testing::ValuesIn(shared(example_cases())),
                         op_case_name);

INSTANTIATE_TEST_SUITE_P(Large, CudaOp, testing::ValuesIn(shared(large_cases())), op_case_name);

/// More tokens than a block sorts, few ids that come often and at both ends of the table. On the
/// emulation a block compares its tokens with several tiles of others.
std::vector<OpCase> long_texts() {
  constexpr std::int64_t kTokens = 1700, kRows = 40, kColumns = 24;
  std::vector<OpCase> cases;
  for (const std::int64_t used : {3, 40}) {
    Operand tokens{"tokens", {kTokens}, {}, DType::i32};
    for (std::int64_t i = 0; i < kTokens; ++i)
      tokens.values.push_back(double((i * i + i / 7) % used * (kRows - 1) / (used - 1)));
    cases.push_back(make_case("embedding_backward/ids_" + std::to_string(used),
                              OpKind::embedding_backward, VocabularyParams{kRows, 1, 1},
                              {normal("dx", {kTokens, kColumns}, 1), tokens},
                              {normal("dtable", {kRows, kColumns}, 2)}));
  }
  return cases;
}

// On a GPU sums that are fused may round a few others.
TEST(CudaUpdate, RoundsAtRandomAsTheCpuDoes) {
  for (const std::int64_t parts : {1, 2}) {
    const OpCase c = small_update(40'000 / 64 * 64, true, parts);
    const std::vector<double> cpu = run_case(*make_backend("cpu"), c)[0],
                              cuda = run_case(*make_cuda_backend(0), c)[0];
    std::size_t lower = 0, differ = 0;
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      lower += cpu[i] < 1 ? 1 : 0;
      differ += cpu[i] != cuda[i] ? 1 : 0;
    }
    EXPECT_GT(lower, cpu.size() / 80);
    EXPECT_LE(differ, lower / 100);
  }
}

INSTANTIATE_TEST_SUITE_P(LongTexts, CudaOp, testing::ValuesIn(shared(long_texts())), op_case_name);

}  // namespace
}  // namespace plimsoll
