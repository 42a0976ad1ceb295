// Ranks that share a GPU exchange bit by bit the values that ranks in host memory get.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/comm/transfer.h"
#include "runtime/cuda/backend.h"
#include "runtime/half.h"

namespace plimsoll {
namespace {

struct Case {
  OpKind kind;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::f32;
  bool in_place = true;
};

class Move : public testing::TestWithParam<Case> {};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max})
      all.push_back({OpKind::all_reduce, reduction, dtype});
    for (const bool in_place : {true, false}) {
      all.push_back({OpKind::reduce_scatter, Reduction::sum, dtype, in_place});
      all.push_back({OpKind::all_gather, Reduction::sum, dtype, in_place});
    }
    all.push_back({OpKind::reduce, Reduction::sum, dtype});
    all.push_back({OpKind::broadcast, Reduction::sum, dtype});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Collectives, Move, testing::ValuesIn(cases()));

constexpr std::int64_t kMembers = 3, kElements = 3 * 401;

/// One block per member, the whole and behind it a part of its own.
struct Memory {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<MemberData> members;
};

Memory fill(const Case& c) {
  Memory memory;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> values(-3, 3);
  const std::int64_t element = element_bytes(c.dtype), part = kElements / kMembers;
  for (std::int64_t member = 0; member < kMembers; ++member) {
    std::vector<float> floats(std::size_t(kElements + part));
    for (float& value : floats) value = values(random);
    if (member == 1) floats[5] = std::numeric_limits<float>::quiet_NaN();
    auto& block = memory.blocks.emplace_back(floats.size() * std::size_t(element));
    from_f32(c.dtype, floats.data(), block.data(), std::int64_t(floats.size()));
  }
  for (std::int64_t member = 0; member < kMembers; ++member) {
    std::byte* const whole = memory.blocks[std::size_t(member)].data();
    const std::int64_t at = c.in_place ? part * member : kElements;
    memory.members.push_back({whole, whole + at * element});
  }
  return memory;
}

/// Every NaN as the same number: its bits are nobody's business.
std::vector<float> floats_of(DType dtype, const std::vector<std::byte>& stored) {
  std::vector<float> values(stored.size() / std::size_t(element_bytes(dtype)));
  to_f32(dtype, stored.data(), values.data(), std::int64_t(values.size()));
  for (float& value : values) {
    if (std::isnan(value)) value = 1e30f;
  }
  return values;
}

TEST_P(Move, GivesTheBitsThatHostMemoryGets) {
  const Case& c = GetParam();
  CollectiveParams params;
  params.reduction = c.reduction;
  params.root = 1;
  Memory expected = fill(c);
  move_collective(c.kind, params, c.dtype, kElements, expected.members);

  const auto backend = make_cuda_backend(0);
  backend->enter_thread();
  RankDevice& device = *backend->device();
  const Memory before = fill(c);
  std::vector<MemberData> members;
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < before.blocks.size(); ++i) {
    const auto& block = before.blocks[i];
    blocks.push_back(device.allocate(Bytes(std::int64_t(block.size()))));
    device.write(blocks.back(), block);
    const std::ptrdiff_t part = before.members[i].part - before.members[i].whole;
    members.push_back({blocks.back(), blocks.back() + part});
  }
  device.move(c.kind, params, c.dtype, kElements, members);
  device.finish(std::chrono::milliseconds(1000), "the exchange");
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::vector<std::byte> found(before.blocks[i].size());
    device.read(blocks[i], found);
    EXPECT_EQ(floats_of(c.dtype, found), floats_of(c.dtype, expected.blocks[i])) << "member " << i;
    device.free(blocks[i]);
  }
}

}  // namespace
}  // namespace plimsoll
