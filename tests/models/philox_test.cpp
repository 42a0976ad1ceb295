// The generator's published answers, and that a stream's elements depend on their place only.
#include "models/job/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace plimsoll {
namespace {

using Counter = std::array<std::uint32_t, 4>;

// Known answers of philox4x32 with 10 rounds from Random123's kat_vectors (Salmon et al. 2011).
TEST(Philox, AgreesWithThePublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, WordsOfAStreamDependOnTheirPlaceOnly) {
  const PhiloxKey key = philox_key(1, 2, 3);
  std::vector<std::uint32_t> whole(64), part(64);
  philox_words(key, 5, 100, 64, whole.data());
  for (std::int64_t first : {100, 101, 102, 103, 104, 117}) {
    const std::int64_t count = 164 - first;
    philox_words(key, 5, first, count, part.data());
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(part[std::size_t(i)], whole[std::size_t(first - 100 + i)]) << first << " " << i;
    }
  }
  EXPECT_EQ(whole[2], philox({25, 0, 5, 0}, key)[2]);  // element 102
  const std::int64_t far = (std::int64_t{1} << 40) + 1;
  philox_words(key, 0, far, 1, part.data());
  EXPECT_EQ(part[0], philox({0, 64, 0, 0}, key)[1]);  // 2^40 / 4 = 64 * 2^32
}

TEST(Philox, KeysDifferBySeedStepAndSite) {
  std::set<PhiloxKey> keys;
  for (std::int64_t seed : {0, 1, 256}) {
    for (std::int64_t step : {0, 1, 256}) {
      for (std::int64_t site : {0, 1, 256}) keys.insert(philox_key(seed, step, site));
    }
  }
  EXPECT_EQ(keys.size(), 27u);
}

}  // namespace
}  // namespace plimsoll
