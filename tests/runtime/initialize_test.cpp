// Initial parameters: that every split draws the same model.
#include "runtime/state/initialize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "runtime/state/parts.h"

namespace plimsoll {
namespace {

TEST(StandardNormal, HasTheMomentsOfANormal) {
  constexpr std::int64_t kDraws = 200'000;
  double sum = 0, squares = 0, fourth = 0;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    const double x = standard_normal(1, "weight", 3, i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Four standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / kDraws, 0, 4 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 4 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourth / kDraws, 3, 4 * std::sqrt(96.0 / kDraws));
}

TEST(StandardNormal, DependsOnSeedNameLayerAndIndex) {
  const std::set<double> values = {standard_normal(1, "a", 0, 0), standard_normal(2, "a", 0, 0),
                                   standard_normal(1, "b", 0, 0), standard_normal(1, "a", 1, 0),
                                   standard_normal(1, "a", 0, 1), standard_normal(1, "a", 0, 2)};
  EXPECT_EQ(values.size(), 6u);
  EXPECT_EQ(standard_normal(1, "a", 0, 7), standard_normal(1, "a", 0, 7));
}

TEST(GlobalIndex, PlacesAPartWithinTheWhole) {
  // The whole is [2, 6, 2]; parts of [2, 3, 2] along dimension 1, the second one.
  const Split split{1, Axis::mp, 2};
  Coordinates at = {};
  at[std::size_t(Axis::mp)] = 1;
  const std::vector<std::int64_t> expected = {6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(global_index({2, 3, 2}, split, at, std::int64_t(i)), expected[i]);
  }
  EXPECT_EQ(global_index({2, 3, 2}, std::nullopt, at, 5), 5);
}

/// One parameter of `shape` and kind of start, `offset` elements into the arena.
Program one_segment(Shape shape, std::optional<Split> split, Init init, std::int64_t offset) {
  Segment segment;
  segment.parameter = "weight";
  segment.layer = 2;
  segment.elements = elements(shape);
  segment.shape = std::move(shape);
  segment.split = split;
  segment.init = init;
  segment.init_stddev = 0.02;
  segment.offset = offset;
  Program program;
  program.segments.push_back(segment);
  return program;
}

TEST(InitializeParameters, PaddingAloneIsZero) {
  // 7 rows of 3, padded to 2 parts of 4: the last row of the second part is padding, and no other.
  std::vector<float> whole(21);
  initialize_parameters(one_segment({7, 3}, std::nullopt, Init::normal, 0), {}, 9, whole);
  Split split{0, Axis::mp, 2};
  split.padding = 1;
  Coordinates at = {};
  at[std::size_t(Axis::mp)] = 1;
  std::vector<float> part(12, 1.0f);
  initialize_parameters(one_segment({4, 3}, split, Init::normal, 0), at, 9, part);
  for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], i < 9 ? whole[12 + i] : 0) << i;
}

TEST(InitializeParameters, EverySplitHoldsItsPartOfTheSameValues) {
  // 3 x 10 x 1 split along the odd middle part: parts of 5 start in the middle of a pair.
  std::vector<float> whole(30);
  initialize_parameters(one_segment({3, 10}, std::nullopt, Init::normal, 0), {}, 9, whole);
  for (std::int64_t part = 0; part < 2; ++part) {
    Coordinates at = {};
    at[std::size_t(Axis::mp)] = part;
    std::vector<float> values(15);
    initialize_parameters(one_segment({3, 5}, Split{1, Axis::mp, 2}, Init::normal, 0), at, 9,
                          values);
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(values[row * 5 + i], whole[row * 10 + std::size_t(part) * 5 + i]);
      }
    }
  }
  EXPECT_EQ(whole[0], float(0.02 * standard_normal(9, "weight", 2, 0)));
  EXPECT_EQ(whole[29], float(0.02 * standard_normal(9, "weight", 2, 29)));
}

TEST(InitializeParameters, PaddingIsZero) {
  // 7 x 3 as two parts of 4 x 3: the last row is padding; 21 elements end in the middle of a pair.
  std::vector<float> whole(21), padded;
  initialize_parameters(one_segment({7, 3}, std::nullopt, Init::normal, 0), {}, 9, whole);
  for (std::int64_t part = 0; part < 2; ++part) {
    Coordinates at = {};
    at[std::size_t(Axis::mp)] = part;
    std::vector<float> values(12, 7);
    initialize_parameters(one_segment({4, 3}, Split{0, Axis::mp, 2, 1, 1}, Init::normal, 0), at, 9,
                          values);
    padded.insert(padded.end(), values.begin(), values.end());
  }
  whole.resize(24, 0);
  EXPECT_EQ(padded, whole);
}

TEST(InitializeParameters, FillsOnlyItsSegments) {
  std::vector<float> arena(8, 7);
  initialize_parameters(one_segment({3}, std::nullopt, Init::ones, 2), {}, 1, arena);
  EXPECT_EQ(arena, (std::vector<float>{7, 7, 1, 1, 1, 7, 7, 7}));
  initialize_parameters(one_segment({2}, std::nullopt, Init::zeros, 4), {}, 1, arena);
  EXPECT_EQ(arena, (std::vector<float>{7, 7, 1, 1, 0, 0, 7, 7}));
}

}  // namespace
}  // namespace plimsoll
