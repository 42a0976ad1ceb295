// Flash attention of the CPU backend, over whole sequences and over parts that ranks share.
#include <gtest/gtest.h>

#include "runtime/cpu/backend.h"
#include "tests/runtime/attention_cases.h"
#include "tests/runtime/attention_parts.h"
#include "tests/runtime/op_expectations.h"
#include "tests/runtime/op_reference.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {
namespace {

class CpuAttention : public testing::TestWithParam<SharedCase> {};

TEST_P(CpuAttention, EqualsFloat64ReferenceAndRepeatsBitForBit) {
  expect_reference(*make_cpu_backend(), *GetParam());
}

INSTANTIATE_TEST_SUITE_P(Table, CpuAttention, testing::ValuesIn(shared(attention_cases())),
                         op_case_name);

struct Parts {
  ContextExchange exchange;
  std::int64_t ranks;
  AttentionSizes sizes;
};

class AttentionParts : public testing::TestWithParam<Parts> {};

TEST_P(AttentionParts, TogetherAreTheWhole) {
  const Parts& parts = GetParam();
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    expect_parts_make_the_whole(*make_cpu_backend(), parts.exchange, parts.ranks, parts.sizes,
                                type);
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, CpuAttention, testing::ValuesIn(shared([] {
                           std::vector<OpCase> cases;
                           for (const AttentionSizes& sizes : std::vector<AttentionSizes>{
                                    {2, 9, 2, 2, 8},
                                    {2, 300, 2, 1, 16},
                                    {1, 300, 2, 1, 16, true, 40},
                                    {1, 300, 2, 2, 16, true, 70, false, 0, 0, true},
                                    {2, 70, 4, 2, 16, true, 0, true, 24, 0, false, 4}}) {
                             for (OpCase& c : flash_attention_cases(with_examples(sizes)))
                               cases.push_back(std::move(c));
                           }
                           return cases;
                         }())),
                         op_case_name);

// Chunks within a tile, and of several tiles; more sequences than one; windows; values of a width
// of their own; ALiBi; examples.
INSTANTIATE_TEST_SUITE_P(
    Table, AttentionParts,
    testing::Values(
        Parts{ContextExchange::ring, 2, {2, 12, 4, 2, 8}},
        Parts{ContextExchange::ring, 3, {1, 12, 2, 1, 8}},
        Parts{ContextExchange::ring, 4, {2, 72, 4, 2, 16}},
        Parts{ContextExchange::ring, 2, {1, 300, 2, 1, 16}},
        Parts{ContextExchange::all_gather, 2, {2, 12, 4, 2, 8}},
        Parts{ContextExchange::all_gather, 3, {2, 24, 2, 1, 8, true, 5}},
        Parts{ContextExchange::all_gather, 2, {1, 300, 2, 1, 16, true, 170}},
        Parts{ContextExchange::all_to_all, 2, {2, 12, 8, 2, 8}},
        Parts{ContextExchange::all_to_all, 2, {2, 24, 8, 4, 8, true, 5}},
        Parts{ContextExchange::all_to_all, 2, {1, 300, 4, 2, 16}},
        Parts{ContextExchange::ring, 3, {2, 24, 3, 3, 12, true, 0, false, 8}},
        Parts{ContextExchange::ring, 2, {1, 300, 2, 2, 16, true, 0, false, 24}},
        Parts{ContextExchange::all_gather, 2, {2, 24, 2, 2, 6, true, 5, false, 3}},
        Parts{ContextExchange::all_to_all, 3, {2, 24, 6, 6, 12, true, 0, false, 8}},
        Parts{ContextExchange::ring, 3, with_alibi({2, 24, 4, 2, 8})},
        Parts{ContextExchange::all_gather, 2, with_alibi({1, 300, 6, 3, 8})},
        Parts{ContextExchange::all_to_all, 2, with_alibi({2, 24, 8, 4, 8})},
        Parts{ContextExchange::all_to_all, 3, with_alibi({2, 24, 6, 6, 8, true, 0, false, 4})},
        Parts{ContextExchange::ring, 3, with_examples({2, 24, 2, 1, 8})},
        Parts{ContextExchange::ring, 2, with_examples({1, 300, 2, 1, 16})},
        Parts{ContextExchange::all_gather, 2, with_examples({2, 300, 2, 1, 16})},
        Parts{ContextExchange::all_gather, 3, with_examples({2, 24, 2, 1, 8, true, 5})},
        Parts{ContextExchange::all_to_all, 2, with_examples(with_alibi({2, 24, 8, 4, 8}))}));

}  // namespace
}  // namespace plimsoll
