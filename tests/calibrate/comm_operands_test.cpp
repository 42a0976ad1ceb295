// Operands that a communication brought are recognised, and so are operands that it did not bring.
#include "calibrate/measure/comm_operands.h"

#include <gtest/gtest.h>

#include <vector>

namespace plimsoll {
namespace {

std::vector<std::vector<float>> produced(std::int64_t members, std::int64_t floats) {
  std::vector<std::vector<float>> all;
  for (std::int64_t index = 0; index < members; ++index) {
    CommOperands operands(Bytes(floats * 4), Bytes(1 << 12));
    const std::span<float> data = operands.produce(3, index);
    all.emplace_back(data.begin(), data.end());
  }
  return all;
}

TEST(CommOperands, SumsAndPartsAreRecognised) {
  constexpr std::int64_t kMembers = 20, kFloats = 200;
  const auto all = produced(kMembers, kFloats);
  std::vector<float> sum(kFloats), parts(kFloats);
  for (std::int64_t i = 0; i < kFloats; ++i) {
    for (const auto& one : all) sum[std::size_t(i)] += one[std::size_t(i)];
    parts[std::size_t(i)] = all[std::size_t(i / 10)][std::size_t(i)];
  }
  EXPECT_TRUE(arrived(OpKind::all_reduce, 4, kMembers, sum));
  EXPECT_TRUE(arrived(OpKind::all_gather, 4, kMembers, parts));
  EXPECT_TRUE(arrived(OpKind::send, 1, 2, all[0]));
  EXPECT_FALSE(arrived(OpKind::all_reduce, 4, kMembers, all[4]));
  EXPECT_FALSE(arrived(OpKind::all_gather, 4, kMembers, all[4]));
  EXPECT_FALSE(arrived(OpKind::send, 1, 2, all[1]));
  EXPECT_TRUE(arrived(OpKind::send, 0, 2, all[1]));  // the sender keeps its own

  std::vector<float> scattered = all[4];  // the sum in its own part only
  std::copy(sum.begin() + 40, sum.begin() + 50, scattered.begin() + 40);
  EXPECT_TRUE(arrived(OpKind::reduce_scatter, 4, kMembers, scattered));
  EXPECT_FALSE(arrived(OpKind::reduce_scatter, 5, kMembers, scattered));
  sum[199] += 1;
  EXPECT_FALSE(arrived(OpKind::all_reduce, 4, kMembers, sum));
}

/// Members that are 16, or 256, apart are told from each other.
TEST(CommOperands, NoTwoMembersOfManyWriteTheSame) {
  constexpr std::int64_t kMembers = 400, kPart = 30;
  const auto all = produced(kMembers, kMembers * kPart);
  std::vector<float> parts(std::size_t(kMembers * kPart));
  for (std::int64_t i = 0; i < kMembers * kPart; ++i) {
    parts[std::size_t(i)] = all[std::size_t(i / kPart)][std::size_t(i)];
  }
  EXPECT_TRUE(arrived(OpKind::all_gather, 0, kMembers, parts));
  for (const std::int64_t apart : {16, 256}) {
    std::vector<float> swapped = parts;
    const auto& other = all[std::size_t(apart)];
    std::copy(other.begin(), other.begin() + kPart, swapped.begin());  // in the place of member 0
    EXPECT_FALSE(arrived(OpKind::all_gather, 0, kMembers, swapped)) << apart;
  }
}

}  // namespace
}  // namespace plimsoll
