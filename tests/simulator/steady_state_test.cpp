// The period of steps that repeat, by hand.
#include "simulator/ranks/steady_state.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::vector<Picoseconds> at(std::initializer_list<std::int64_t> counts) {
  std::vector<Picoseconds> times;
  for (std::int64_t count : counts) times.emplace_back(count);
  return times;
}

TEST(SteadyState, AStepThatEndsAsItBeganRepeats) {
  const std::vector<std::vector<Picoseconds>> begun = {at({0, 0}), at({7, 5})};
  EXPECT_EQ(cycle_time(begun, at({17, 15}))->count(), 10);
}

TEST(SteadyState, StepsThatAlternateCountTheirMean) {
  // x1' = x2 + 10, x2' = x1 + 2: steps of 10 and 2 in turn.
  const std::vector<std::vector<Picoseconds>> begun = {at({0, 0}), at({10, 2}), at({12, 12})};
  EXPECT_EQ(cycle_time(begun, at({22, 14}))->count(), 6);
  // An odd sum is rounded up.
  const std::vector<std::vector<Picoseconds>> odd = {at({0, 0}), at({10, 3})};
  EXPECT_EQ(cycle_time(odd, at({13, 13}))->count(), 7);
}

TEST(SteadyState, WithoutACycleThereIsNoPeriod) {
  const std::vector<std::vector<Picoseconds>> begun = {at({0, 0}), at({10, 2})};
  EXPECT_FALSE(cycle_time(begun, at({20, 3})).has_value());
  EXPECT_EQ(mean_step(begun, at({21, 3}), 1).count(), 11);
  EXPECT_EQ(mean_step(begun, at({21, 3}), 2).count(), 11);  // 10.5
}

}  // namespace
}  // namespace plimsoll
