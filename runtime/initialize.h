// An initial parameter value depends only on the seed, the parameter's name, its layer and the
// element's index in the whole (unsplit) parameter. So every strategy starts the same model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/grid.h"
#include "graph/program.h"
#include "runtime/philox.h"

namespace plimsoll {

/// Returns element `index` (row-major) of N(0, 1) for one parameter, by Philox4x32-10 (Salmon et
/// al. 2011, "Parallel random numbers: as easy as 1, 2, 3") counted by index and layer, and
/// Box-Muller.
double standard_normal(std::int64_t seed, std::string_view parameter, std::int64_t layer,
                       std::int64_t index);

/// Returns the index in the whole parameter of element `index` of the part held at `at`. Both are
/// row-major.
std::int64_t global_index(const Shape& local, const std::optional<Split>& split,
                          const Coordinates& at, std::int64_t index);

/// A TypedRange is a run of elements of one type in the parameter arena: a segment with the padding
/// behind it.
struct TypedRange {
  std::int64_t begin = 0, elements = 0;
  DType type = DType::f32;
  Bytes offset;  ///< bytes from the start of the arena
};
/// Returns the ranges of the whole arena, from its start. Where the arena holds the parts that a
/// rank owns (stage 3), it returns one range of the type that all parts have.
std::vector<TypedRange> parameter_ranges(const Program& program, Bytes arena);

/// Fills the segments of an f32 arena; elements between segments stay unchanged. Parameters of
/// other types are these values rounded, and masters are these values. The arena is whole, or has
/// the parts that this rank owns, one after the other (masters under sharding, parameters in stage
/// 3). The values do not depend on `threads` (0: all cores).
void initialize_parameters(const Program& program, const Coordinates& at, std::int64_t seed,
                           std::span<float> arena, std::int64_t threads = 1);

}  // namespace plimsoll
