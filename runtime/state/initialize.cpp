// Initial parameters: a counter-based generator over global element indices.
#include "runtime/state/initialize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "models/job/philox.h"
#include "runtime/state/arena_values.h"
#include "runtime/state/parts.h"

namespace plimsoll {
namespace {

// FNV-1a over the name, started from the seed: one key per (seed, parameter).
std::uint64_t key_of(std::int64_t seed, std::string_view parameter) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (int shift = 0; shift < 64; shift += 8) mix(std::uint8_t(std::uint64_t(seed) >> shift));
  for (const char letter : parameter) mix(static_cast<unsigned char>(letter));
  return hash;
}

/// 53 random bits in (0, 1]: its logarithm is finite.
double uniform(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = ((std::uint64_t{high} << 32) | low) >> 11;
  return double(bits + 1) * 0x1p-53;
}

/// Elements 2 * pair and 2 * pair + 1.
std::pair<double, double> normal_pair(std::uint64_t key, std::int64_t layer, std::int64_t pair) {
  const auto words = philox(
      {std::uint32_t(pair), std::uint32_t(std::uint64_t(pair) >> 32), std::uint32_t(layer), 0},
      {std::uint32_t(key), std::uint32_t(key >> 32)});
  const double radius = std::sqrt(-2 * std::log(uniform(words[0], words[1])));
  const double angle = 2 * std::numbers::pi * uniform(words[2], words[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double normal_at(std::uint64_t key, std::int64_t layer, std::int64_t index) {
  const auto [even, odd] = normal_pair(key, layer, index / 2);
  return index % 2 == 0 ? even : odd;
}

}  // namespace

double standard_normal(std::int64_t seed, std::string_view parameter, std::int64_t layer,
                       std::int64_t index) {
  return normal_at(key_of(seed, parameter), layer, index);
}

namespace {

void fill_normal(const Segment& segment, std::int64_t first, const Coordinates& at,
                 std::int64_t seed, std::span<float> values) {
  const std::uint64_t key = key_of(seed, segment.parameter);
  const std::int64_t real = whole_elements(segment.shape, segment.split);
  const auto run = [&](std::int64_t begin, std::int64_t index, std::int64_t length) {
    float* value = values.data() + begin;
    for (const std::int64_t end = index + length; index < end;) {
      if (index >= real) {
        *value++ = 0;
        ++index;
      } else if (index % 2 == 0 && index + 1 < std::min(end, real)) {  // neighbours share a pair
        const auto [even, odd] = normal_pair(key, segment.layer, index / 2);
        *value++ = float(segment.init_stddev * even);
        *value++ = float(segment.init_stddev * odd);
        index += 2;
      } else {
        *value++ = float(segment.init_stddev * normal_at(key, segment.layer, index++));
      }
    }
  };
  for_each_run(segment.shape, segment.split, at, first, std::int64_t(values.size()), run);
}

}  // namespace

void initialize_segment(const Segment& segment, std::int64_t first, const Coordinates& at,
                        std::int64_t seed, std::span<float> values) {
  switch (segment.init) {
    case Init::none:
      break;
    case Init::zeros:
      std::fill(values.begin(), values.end(), 0.0f);
      break;
    case Init::ones:
      std::fill(values.begin(), values.end(), 1.0f);
      break;
    case Init::normal:
      fill_normal(segment, first, at, seed, values);
      break;
  }
}

void initialize_parameters(const Program& program, const Coordinates& at, std::int64_t seed,
                           std::span<float> arena, std::int64_t threads) {
  const auto fill = [&](const Segment& segment, std::int64_t first, std::span<float> values) {
    initialize_segment(segment, first, at, seed, values);
  };
  fill_segments(program, at, arena, threads, fill);
}

}  // namespace plimsoll
