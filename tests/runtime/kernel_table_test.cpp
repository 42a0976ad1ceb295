// Tables of kernels are checked for missing and needless entries.
#include "runtime/kernel_table.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Table = std::array<const char*, kOpKinds>;

/// A kernel for every kind that is executed.
Table full_table() {
  Table table = {};
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    if (is_executed(OpKind(i))) table[i] = "kernel";
  }
  return table;
}

constexpr std::array<OpKind, 0> kNothing = {};

TEST(KernelTable, HasLocalOpsThatAreExecuted) {
  EXPECT_TRUE(is_executed(OpKind::gelu));
  EXPECT_TRUE(is_executed(OpKind::flash_attention));
  for (OpKind kind : {OpKind::linear, OpKind::all_reduce, OpKind::send, OpKind::bias_gelu}) {
    EXPECT_FALSE(is_executed(kind)) << to_text(kind);
  }
}

TEST(KernelTable, IsCoveredByAKernelOrAWordThatThereIsNone) {
  Table table = full_table();
  EXPECT_TRUE(covers_ops(table, kNothing));
  table[std::size_t(OpKind::gelu)] = nullptr;
  EXPECT_FALSE(covers_ops(table, kNothing));
  EXPECT_TRUE(covers_ops(table, std::array{OpKind::gelu}));
}

TEST(KernelTable, HasNoKernelThatNothingAsksFor) {
  Table table = full_table();
  EXPECT_FALSE(covers_ops(table, std::array{OpKind::gelu}));  // there is one
  table[std::size_t(OpKind::bias_gelu)] = "kernel";
  EXPECT_FALSE(covers_ops(table, kNothing));
}

TEST(KernelTable, LacksExecutedKindsOnce) {
  Table table = full_table();
  EXPECT_FALSE(covers_ops(table, std::array{OpKind::all_reduce}));
  table[std::size_t(OpKind::gelu)] = nullptr;
  EXPECT_FALSE(covers_ops(table, std::array{OpKind::gelu, OpKind::gelu}));
}

}  // namespace
}  // namespace plimsoll
