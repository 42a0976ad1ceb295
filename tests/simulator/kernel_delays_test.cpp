// Kernels and communications slow each other, call by call.
#include "simulator/ranks/kernel_delays.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr OverlapCurves::Slowdowns kKernels{1.25, 1}, kCommunications{1, 1.25};

std::int64_t computed(KernelDelays& delays, std::int64_t work) {
  return delays.compute(Picoseconds(work)).count();
}

std::int64_t communicated(KernelDelays& delays, std::size_t call, std::int64_t time,
                          OverlapCurves::Slowdowns slowdowns, Stream stream = Stream::data) {
  return delays.communicate(stream, call, Picoseconds(time), slowdowns).count();
}

TEST(KernelDelays, AsLongAsTheCommunicationLasts) {
  KernelDelays delays;
  EXPECT_EQ(computed(delays, 1'000), 0);
  EXPECT_EQ(communicated(delays, 1, 1'000, kKernels), 0);
  // 1,000 beside it are 800 of work and 200 lost: 400 take 500, then 400, the rest is alone.
  EXPECT_EQ(computed(delays, 400), 100);
  EXPECT_EQ(computed(delays, 2'000), 100);
  EXPECT_EQ(computed(delays, 2'000), 0);
}

TEST(KernelDelays, NotBehindWhatWaitedForIt) {
  KernelDelays delays;
  communicated(delays, 1, 1'000, kKernels);
  communicated(delays, 2, 1'000, kKernels);
  communicated(delays, 3, 1'000, kKernels, Stream::send_next);
  delays.wait_for(Stream::data, 1);
  EXPECT_EQ(computed(delays, 400), 100);  // of the second; two at once do not slow twice
  delays.wait_for(Stream::data, 2);
  EXPECT_EQ(computed(delays, 10'000), 200);  // of the transfer
  EXPECT_EQ(computed(delays, 10'000), 0);
}

TEST(KernelDelays, CommunicationsByWhatWasComputedBeforeThem) {
  KernelDelays delays;
  EXPECT_EQ(communicated(delays, 0, 1'000, kCommunications), 0);
  computed(delays, 500);
  computed(delays, 500);
  EXPECT_EQ(communicated(delays, 1, 1'000, kCommunications), 200);
  EXPECT_EQ(communicated(delays, 2, 1'000, kCommunications), 0);
  computed(delays, 100'000);  // only a quarter of what it takes itself can be lost
  EXPECT_EQ(communicated(delays, 3, 1'000, kCommunications), 250);
  EXPECT_EQ(communicated(delays, 4, 1'000, kCommunications, Stream::world), 250);
}

/// A cycle: a communication of 1,000 that nothing waits for, and `work`.
void run_cycle(KernelDelays& delays, std::size_t call, std::int64_t work) {
  delays.begin_cycle();
  communicated(delays, call, 1'000, kKernels);
  computed(delays, work);
}

TEST(KernelDelays, CyclesThatAreLeftOutCountAll) {
  for (const std::int64_t work : {300, 800, 5'000}) {
    KernelDelays whole, few;
    for (std::size_t c = 0; c < 40; ++c) run_cycle(whole, c, work);
    for (std::size_t c = 0; c < 10; ++c) run_cycle(few, c, work);
    EXPECT_TRUE(few.leave_out(30));
    EXPECT_EQ(communicated(whole, 40, 1'000'000, kCommunications, Stream::world),
              communicated(few, 40, 1'000'000, kCommunications, Stream::world));
    EXPECT_EQ(computed(whole, 1'000'000), computed(few, 1'000'000)) << work;
  }
}

TEST(KernelDelays, StepsOfAnyLengthTakeTheMemoryOfWhatIsPending) {
  KernelDelays delays;
  communicated(delays, 0, 1'000, kKernels);
  communicated(delays, 1, 1'000, kKernels);
  for (std::size_t call = 2; call < 100'000; ++call) {  // two are always pending
    communicated(delays, call, 1'000, kKernels);
    delays.wait_for(Stream::data, call - 2);
    ASSERT_EQ(delays.lost()[std::size_t(Stream::data)], Picoseconds(400));
  }
  EXPECT_LE(delays.room(Stream::data), 16u);
  EXPECT_EQ(computed(delays, 10'000), 400);
}

TEST(KernelDelays, CyclesThatUseUpWhatWasLeftAreNotAlike) {
  KernelDelays delays;
  for (std::size_t c = 0; c < 10; ++c) communicated(delays, c, 100'000, kKernels);
  run_cycle(delays, 10, 5'000);
  EXPECT_FALSE(delays.leave_out(30));
}

}  // namespace
}  // namespace plimsoll
