// Weights are packed block by block.
#include "runtime/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace plimsoll {

namespace {

constexpr float kSteps = 127;
constexpr int kZero = 128;

float float_at(const std::byte* packed, std::int64_t at) {
  float value = 0;
  std::memcpy(&value, packed + at, sizeof(value));
  return value;
}

void put_float(std::byte* packed, std::int64_t at, float value) {
  std::memcpy(packed + at, &value, sizeof(value));
}

float scale_of(const std::byte* packed, const PackedLayout& layout, std::int64_t block) {
  constexpr auto kFloat = std::int64_t(sizeof(float));
  if (!layout.nested) return float_at(packed, layout.scales + block * kFloat);
  const int step = std::to_integer<int>(packed[layout.scales + block]) - kZero;
  const float outer = float_at(packed, layout.outer + block / kOuterBlock * kFloat);
  return float_at(packed, layout.mean) + outer * float(step) / kSteps;
}

std::vector<float> largest_of_blocks(std::span<const float> weight) {
  std::vector<float> scales((weight.size() + kPackedBlock - 1) / kPackedBlock);
  for (std::size_t i = 0; i < weight.size(); ++i)
    scales[i / kPackedBlock] = std::max(scales[i / kPackedBlock], std::abs(weight[i]));
  return scales;
}

void put_nested(const std::vector<float>& scales, const PackedLayout& layout, std::byte* packed) {
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const float mean = scales.empty() ? 0 : float(sum / double(scales.size()));
  put_float(packed, layout.mean, mean);
  for (std::size_t begin = 0; begin < scales.size(); begin += kOuterBlock) {
    const std::size_t end = std::min(begin + std::size_t(kOuterBlock), scales.size());
    float outer = 0;
    for (std::size_t i = begin; i < end; ++i) outer = std::max(outer, std::abs(scales[i] - mean));
    put_float(packed, layout.outer + std::int64_t(begin / kOuterBlock * sizeof(float)), outer);
    for (std::size_t i = begin; i < end; ++i) {
      const float steps = outer > 0 ? std::round((scales[i] - mean) / outer * kSteps) : 0;
      packed[layout.scales + std::int64_t(i)] = std::byte(kZero + int(steps));
    }
  }
}

/// Returns the code of the value that is nearest.
int code_of(float share) {
  const auto above = std::ranges::lower_bound(kNormalFloat, share);
  if (above == kNormalFloat.end()) return int(kNormalFloat.size()) - 1;
  const int code = int(above - kNormalFloat.begin());
  if (code == 0) return 0;
  return share - kNormalFloat[std::size_t(code - 1)] < *above - share ? code - 1 : code;
}

}  // namespace

void pack_weight(std::span<const float> weight, bool nested, std::byte* packed) {
  const auto count = std::int64_t(weight.size());
  const PackedLayout layout = packed_layout(count, nested);
  std::memset(packed, 0, std::size_t(layout.bytes));
  const std::vector<float> scales = largest_of_blocks(weight);
  if (nested) {
    put_nested(scales, layout, packed);
  } else {
    std::memcpy(packed + layout.scales, scales.data(), scales.size() * sizeof(float));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = scale_of(packed, layout, i / kPackedBlock);
    const int code = code_of(scale > 0 ? weight[std::size_t(i)] / scale : 0);
    packed[i / 2] |= std::byte(i % 2 == 0 ? code << 4 : code);
  }
}

void unpack_weight(const std::byte* packed, std::int64_t elements, bool nested, std::int64_t first,
                   std::span<float> values) {
  const PackedLayout layout = packed_layout(elements, nested);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t at = first + std::int64_t(i);
    const int pair = std::to_integer<int>(packed[at / 2]);
    const int code = at % 2 == 0 ? pair >> 4 : pair & 15;
    values[i] = kNormalFloat[std::size_t(code)] * scale_of(packed, layout, at / kPackedBlock);
  }
}

}  // namespace plimsoll
