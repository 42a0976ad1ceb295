// Peaks of memory: what runs have in common is learned, and what single runs are off is not.
#include "fitting/learned_memory.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/log_statistics.h"

namespace plimsoll {
namespace {

/// A run whose allocated and reserved bytes are so many times those predicted.
std::vector<LoggedPeak> run_of(double allocated, double reserved) {
  constexpr double kPredicted = 40e9;
  return {
      {MemoryKind::allocated, Bytes(std::int64_t(allocated * kPredicted)), Bytes(40'000'000'000)},
      {MemoryKind::reserved, Bytes(std::int64_t(reserved * kPredicted)), Bytes(40'000'000'000)}};
}

TEST(LearnedMemory, RunsThatAgreeMoveItAndRunsThatDifferDoNot) {
  const std::vector<std::vector<LoggedPeak>> agree(4, run_of(1, 1.2));
  const std::vector<std::vector<LoggedPeak>> differ = {run_of(1, 1.2), run_of(1, 1 / 1.2),
                                                       run_of(1, 1.2), run_of(1, 1 / 1.2)};
  const LearnedMemory same = learn_memory(agree)->memory, mixed = learn_memory(differ)->memory;
  EXPECT_NEAR(same.factor, 1.2, 0.02);
  EXPECT_NEAR(mixed.factor, 1, 0.01);
  EXPECT_LT(same.half_width, mixed.half_width);
  // Four runs that are off by 18 % in half of the peaks: their noise is at least about an eighth.
  EXPECT_GT(mixed.half_width, kNormal90 * 0.08);
}

TEST(LearnedMemory, OneRunNarrowsAndMovesLessThanItIsOff) {
  const std::vector<std::vector<LoggedPeak>> run = {run_of(1.02, 1.04)};
  const LearnedMemory one = learn_memory(run)->memory;
  EXPECT_GT(one.factor, 1);
  EXPECT_LT(one.factor, 1.04);
  EXPECT_LT(one.half_width, std::hypot(memory_spread().allocated, memory_spread().kept));
  EXPECT_FALSE(learn_memory(std::vector<std::vector<LoggedPeak>>(3)).has_value());
}

TEST(LearnedMemory, AWrongPeakIsNamedAndBendsNothing) {
  const std::vector<std::vector<LoggedPeak>> right = {
      run_of(1, 1.02), {}, run_of(1, 1.03), run_of(1.01, 1.02)};
  std::vector<std::vector<LoggedPeak>> with_wrong = right;
  with_wrong.push_back(run_of(2, 2.5));
  const LearnedPeaks found = *learn_memory(with_wrong);
  EXPECT_EQ(found.contradicts, (std::vector{false, false, false, false, true}));
  EXPECT_NEAR(found.memory.factor / learn_memory(right)->memory.factor, 1, 1e-9);
}

}  // namespace
}  // namespace plimsoll
