// The allocators of PyTorch and Paddle on sequences that can be followed by hand.
#include "simulator/memory/block_allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace plimsoll {
namespace {

constexpr Bytes kib(std::int64_t count) { return Bytes(count << 10); }
constexpr Bytes mib(std::int64_t count) { return Bytes(count << 20); }

Allocator expandable() {
  Allocator allocator = pytorch_allocator();
  allocator.expandable_segments = true;
  return allocator;
}

TEST(PyTorchAllocator, RequestsAreRoundedUpToHalfAKibibyte) {
  BlockAllocator allocator(pytorch_allocator());
  allocator.take(Bytes(1));
  EXPECT_EQ(allocator.allocated(), Bytes(512));
  allocator.take(Bytes(513));
  EXPECT_EQ(allocator.allocated(), Bytes(512 + 1024));
}

TEST(PyTorchAllocator, TheSizeOfASegmentFollowsFromTheRequest) {
  const auto segment = [](Bytes request) {
    BlockAllocator allocator(pytorch_allocator());
    allocator.take(request);
    return allocator.reserved();
  };
  EXPECT_EQ(segment(Bytes(1)), mib(2));
  EXPECT_EQ(segment(mib(1)), mib(2));
  EXPECT_EQ(segment(mib(1) + Bytes(1)), mib(20));
  EXPECT_EQ(segment(mib(10) - Bytes(512)), mib(20));
  EXPECT_EQ(segment(mib(10)), mib(10));
  EXPECT_EQ(segment(mib(11)), mib(12));
}

TEST(PyTorchAllocator, SmallAndLargeRequestsHaveSegmentsOfTheirOwn) {
  BlockAllocator allocator(pytorch_allocator());
  const auto large = allocator.take(mib(64));
  allocator.give(*large);
  allocator.take(mib(1));
  EXPECT_EQ(allocator.reserved(), mib(64 + 2));
}

TEST(PyTorchAllocator, ARestOfUpToAMebibyteIsHandedOutToo) {
  BlockAllocator allocator(pytorch_allocator());
  allocator.give(*allocator.take(mib(64)));
  const auto block = allocator.take(mib(63));
  EXPECT_EQ(allocator.bytes(*block), mib(64));
  EXPECT_EQ(allocator.allocated(), mib(64));
  allocator.give(*block);
  EXPECT_EQ(allocator.bytes(*allocator.take(mib(62))), mib(62)) << "two MiB stay";
  allocator.take(mib(2));
  EXPECT_EQ(allocator.reserved(), mib(64));
}

TEST(PyTorchAllocator, TheSmallestBlockThatFitsIsSplitFromItsFrontAndMergedAgain) {
  BlockAllocator allocator(pytorch_allocator());
  const auto large = allocator.take(mib(64)), small = allocator.take(mib(32));
  allocator.give(*large);
  allocator.give(*small);
  const auto first = allocator.take(mib(12)), second = allocator.take(mib(12));
  EXPECT_EQ(allocator.reserved(), mib(96));
  allocator.take(mib(64));
  EXPECT_EQ(allocator.reserved(), mib(96)) << "both lie in the segment of 32 MiB";
  allocator.give(*first);
  allocator.take(mib(20));
  EXPECT_EQ(allocator.reserved(), mib(116)) << "12 and 8 MiB are free, apart";
  allocator.give(*second);
  allocator.take(mib(32));
  EXPECT_EQ(allocator.reserved(), mib(116)) << "and are one again";
}

TEST(PyTorchAllocator, StreamsDoNotShareWhatIsFree) {
  BlockAllocator allocator(pytorch_allocator());
  allocator.give(*allocator.take(mib(64), 0));
  allocator.take(mib(64), 1);
  EXPECT_EQ(allocator.reserved(), mib(128));
  allocator.take(mib(64), 0);
  EXPECT_EQ(allocator.reserved(), mib(128));
}

TEST(PyTorchAllocator, ShortOfMemoryItGivesBackWholeSegmentsOnly) {
  BlockAllocator allocator(pytorch_allocator(), mib(100));
  const auto a = allocator.take(mib(30)), b = allocator.take(mib(30)), c = allocator.take(mib(30));
  allocator.give(*a);
  allocator.give(*b);
  ASSERT_TRUE(allocator.take(mib(40))) << "two free segments made room";
  EXPECT_EQ(allocator.reserved(), mib(70));
  EXPECT_EQ(allocator.most_reserved(), mib(90));
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_FALSE(allocator.take(mib(31)));
  allocator.give(*c);
  allocator.take(mib(4));
  EXPECT_FALSE(allocator.take(mib(31))) << "the rest of a split segment stays";
}

TEST(PyTorchAllocator, AnExpandableSegmentGrowsByPages) {
  BlockAllocator allocator(expandable());
  const auto first = allocator.take(mib(30));
  EXPECT_EQ(allocator.reserved(), mib(40));
  const auto second = allocator.take(mib(30));
  EXPECT_EQ(allocator.reserved(), mib(60)) << "the rest of the page before is used";
  allocator.give(*first);
  allocator.give(*second);
  allocator.take(mib(61));
  EXPECT_EQ(allocator.reserved(), mib(80)) << "one piece that has grown";
  allocator.take(kib(1));
  EXPECT_EQ(allocator.reserved(), mib(82)) << "small requests: pages of two";
}

TEST(PyTorchAllocator, AnExpandableSegmentGivesBackPagesAndFillsThemFirst) {
  BlockAllocator allocator(expandable(), mib(120));
  const auto a = allocator.take(mib(50)), b = allocator.take(mib(30));
  allocator.give(*a);
  ASSERT_TRUE(allocator.take(mib(70))) << "0 to 40 go back, 80 to 140 come";
  EXPECT_EQ(allocator.reserved(), mib(120));
  allocator.give(*b);
  ASSERT_FALSE(allocator.take(mib(60)));
  ASSERT_TRUE(allocator.take(mib(40)));
}

TEST(PaddleAllocator, AChunkHoldsItsRequestAndAHeader) {
  BlockAllocator allocator(paddle_allocator());
  const auto large = allocator.take(mib(256));
  EXPECT_EQ(allocator.reserved(), mib(258)) << "256 MiB and 256 bytes, in whole 2 MiB";
  allocator.give(*large);
  for (int i = 0; i < 16; ++i) allocator.take(mib(16));
  EXPECT_EQ(allocator.reserved(), mib(258)) << "sixteen of 16 MiB lie in the freed chunk";
  allocator.take(mib(16));
  EXPECT_EQ(allocator.reserved(), mib(258 + 18)) << "the seventeenth has its own";
}

TEST(PaddleAllocator, TheEndOfAFreeBlockIsHandedOut) {
  BlockAllocator allocator(paddle_allocator());
  allocator.give(*allocator.take(mib(64)));
  const auto end = allocator.take(mib(16)), before = allocator.take(mib(16));
  allocator.give(*end);
  allocator.take(mib(17));  // of the front, which has 32 MiB: 16 at the end are too few
  allocator.give(*before);
  allocator.take(mib(32));
  EXPECT_EQ(allocator.reserved(), mib(66)) << "the last two are one block of 32 MiB";
}

TEST(PaddleAllocator, ShortOfMemoryItFreesIdleChunks) {
  BlockAllocator allocator(paddle_allocator(), mib(100));
  const auto a = allocator.take(mib(62));
  allocator.give(*a);
  ASSERT_TRUE(allocator.take(mib(90)));
  EXPECT_EQ(allocator.reserved(), mib(92));
  EXPECT_FALSE(allocator.take(mib(9)));
}

/// Whatever the order: blocks handed out never exceed what is reserved, and all given back is one
/// free block for each segment again, so a second round takes nothing.
RC_GTEST_PROP(BlockAllocators, GiveBackWhatTheyHandedOut, ()) {
  const auto rule = *rc::gen::element(pytorch_allocator(), expandable(), paddle_allocator());
  BlockAllocator allocator(rule);
  const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(
      rc::gen::inRange<std::int64_t>(1, std::int64_t{40} << 20));
  const auto round = [&] {
    std::map<std::size_t, BlockAllocator::Block> alive;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      alive[i] = *allocator.take(Bytes(sizes[i]), std::uint32_t(i % 2));
      RC_ASSERT(allocator.bytes(alive[i]) >= Bytes(sizes[i]));
      RC_ASSERT(allocator.allocated() <= allocator.reserved());
      const std::size_t victim = std::size_t(sizes[i]) % sizes.size();
      if (alive.contains(victim)) {
        allocator.give(alive[victim]);
        alive.erase(victim);
      }
    }
    for (const auto& [i, block] : alive) allocator.give(block);
  };
  round();
  RC_ASSERT(allocator.allocated() == Bytes(0));
  const Bytes reserved = allocator.reserved();
  round();
  if (rule.expandable_segments) RC_ASSERT(allocator.reserved() == reserved);
  RC_ASSERT(allocator.most_reserved() >= reserved);
}

}  // namespace
}  // namespace plimsoll
