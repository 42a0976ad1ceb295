// Initial parameters: a counter-based generator over global element indices.
#include "runtime/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "runtime/backend.h"

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

/// The elements of the whole tensor, without its padding: these come first.
std::int64_t real_elements(const Shape& local, const std::optional<Split>& split) {
  const std::int64_t all = elements(local);
  return split ? all * parts_of(*split) - all / local[0] * split->padding : all;
}

/// `values`: elements of the segment from `first` on. Padding is zero, so that norms of whole
/// tensors do not depend on the split.
void fill_normal(const Segment& segment, std::int64_t first, const Coordinates& at,
                 std::int64_t seed, std::span<float> values) {
  const std::uint64_t key = key_of(seed, segment.parameter);
  const std::int64_t real = real_elements(segment.shape, segment.split);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t local = first + std::int64_t(i);
    const std::int64_t index = global_index(segment.shape, segment.split, at, local);
    if (index >= real) {
      values[i] = 0;
      continue;
    }
    // Neighbours share a pair: most of the time both lie in this part.
    if (index % 2 == 0 && i + 1 < values.size() &&
        global_index(segment.shape, segment.split, at, local + 1) == index + 1 &&
        index + 1 < real) {
      const auto [even, odd] = normal_pair(key, segment.layer, index / 2);
      values[i] = float(segment.init_stddev * even);
      values[++i] = float(segment.init_stddev * odd);
    } else {
      values[i] = float(segment.init_stddev * normal_at(key, segment.layer, index));
    }
  }
}

void fill(const Segment& segment, std::int64_t first, const Coordinates& at, std::int64_t seed,
          std::span<float> values) {
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

}  // namespace

double standard_normal(std::int64_t seed, std::string_view parameter, std::int64_t layer,
                       std::int64_t index) {
  return normal_at(key_of(seed, parameter), layer, index);
}

std::int64_t global_index(const Shape& local, const std::optional<Split>& split,
                          const Coordinates& at, std::int64_t index) {
  if (!split || parts_of(*split) == 1) return index;
  std::int64_t inner = 1;
  for (std::size_t d = std::size_t(split->dim) + 1; d < local.size(); ++d) inner *= local[d];
  const std::int64_t extent = local[std::size_t(split->dim)];
  const std::int64_t outer_index = index / (extent * inner);
  const std::int64_t along = index / inner % extent + extent * part_index(*split, at);
  const std::int64_t of_part =
      (outer_index * extent * split->degree + along) * inner + index % inner;
  // Experts are the outermost dimension.
  return split->experts == 1
             ? of_part
             : of_part + at[std::size_t(Axis::ep)] * elements(local) * split->degree;
}

std::vector<TypedRange> parameter_ranges(const Program& program, Bytes arena) {
  std::vector<TypedRange> ranges;
  if (program.segments.empty()) return ranges;
  const auto& segments = program.segments;
  const auto same = [&](const Segment& s) { return s.dtype == segments[0].dtype; };
  if (std::all_of(segments.begin(), segments.end(), same)) {
    const DType type = segments[0].dtype;
    return {{0, arena.count() / bytes_of(type).count(), type, {}}};
  }
  Bytes offset;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    TypedRange range{segments[i].offset, 0, segments[i].dtype, offset};
    const Bytes element = bytes_of(range.type);
    range.elements = i + 1 < segments.size() ? segments[i + 1].offset - range.begin
                                             : (arena - offset).count() / element.count();
    offset += range.elements * element;
    ranges.push_back(range);
  }
  INVARIANT(offset == arena, "parameters of several types fill their arena");
  return ranges;
}

void initialize_parameters(const Program& program, const Coordinates& at, std::int64_t seed,
                           std::span<float> arena, std::int64_t threads) {
  if (program.segments.empty()) return;
  const Segment& last = program.segments.back();
  const bool whole = last.offset + last.elements <= std::int64_t(arena.size());
  if (!whole) {  // this rank's parts, one after the other
    const std::vector<OwnedRange> ranges = owned_ranges(program, at);
    for_each_index(ranges.size(), threads, [&](std::size_t i) {
      const OwnedRange& range = ranges[i];
      const Segment& segment = program.segments[std::size_t(range.segment)];
      const bool inside = std::size_t(range.state_offset + range.elements) <= arena.size();
      // Beside others f32 parameters come last, and have no masters.
      if (!inside && segment.dtype == DType::f32) return;
      INVARIANT(inside, "a part of the parameters lies outside their arena");
      fill(segment, range.arena_offset - segment.offset, at, seed,
           arena.subspan(std::size_t(range.state_offset), std::size_t(range.elements)));
    });
    return;
  }
  for_each_index(program.segments.size(), threads, [&](std::size_t i) {
    const Segment& segment = program.segments[i];
    fill(segment, 0, at, seed,
         arena.subspan(std::size_t(segment.offset), std::size_t(segment.elements)));
  });
}

}  // namespace plimsoll
