// Weights in 4 bits: their bytes, and how far the values are from those that were packed.
#include "runtime/packed_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/op.h"
#include "tests/runtime/op_cases.h"

namespace plimsoll {
namespace {

std::vector<float> unpacked(const std::vector<float>& weight, bool nested) {
  const auto count = std::int64_t(weight.size());
  std::vector<std::byte> packed(std::size_t(packed_bytes(count, nested)));
  pack_weight(weight, nested, packed.data());
  std::vector<float> values(weight.size());
  unpack_weight(packed.data(), count, nested, 0, values);
  return values;
}

// 4.5 bits for each element, or 4.127 (QLoRA, arXiv 2305.14314, section 3).
TEST(PackedWeights, TakeAsManyBytesAsPublished) {
  constexpr std::int64_t kCount = 4096 * 14336;
  EXPECT_EQ(packed_bytes(kCount, false), kCount / 2 + kCount / 64 * 4);
  EXPECT_EQ(packed_bytes(kCount, true), kCount / 2 + kCount / 64 + kCount / 64 / 256 * 4 + 4);
  EXPECT_EQ(packed_bytes(1, false), 8);
}

// Neighbouring values are at most 0.304 apart, so that an element is off by half of it at most.
TEST(PackedWeights, AreNearTheWeights) {
  const std::vector<double> drawn = normal_values(1000, 3, 0.02);
  const std::vector<float> weight(drawn.begin(), drawn.end());
  for (const bool nested : {false, true}) {
    const std::vector<float> found = unpacked(weight, nested);
    for (std::size_t block = 0; block < weight.size(); block += 64) {
      float most = 0;
      const std::size_t end = std::min(weight.size(), block + 64);
      for (std::size_t i = block; i < end; ++i) most = std::max(most, std::abs(weight[i]));
      for (std::size_t i = block; i < end; ++i)
        EXPECT_NEAR(found[i], weight[i], (nested ? 0.17 : 0.153) * most) << i;
    }
  }
}

// Values of the code come back as they are, a part of a weight as it lies in the whole.
TEST(PackedWeights, KeepValuesOfTheCode) {
  std::vector<float> weight;
  for (int i = 0; i < 100; ++i) weight.push_back(0.5f * kNormalFloat[std::size_t(i % 16)]);
  EXPECT_EQ(unpacked(weight, false), weight);
  std::vector<std::byte> packed(std::size_t(packed_bytes(100, false)));
  pack_weight(weight, false, packed.data());
  std::vector<float> part(33);
  unpack_weight(packed.data(), 100, false, 51, part);
  EXPECT_EQ(part, std::vector<float>(weight.begin() + 51, weight.begin() + 84));
}

}  // namespace
}  // namespace plimsoll
