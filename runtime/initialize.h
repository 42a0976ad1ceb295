// Initial parameters: a value depends only on the seed, the parameter's name, its layer and the
// element's index in the whole (unsplit) parameter, so every strategy starts the same model.
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

/// Element `index` (row-major) of N(0, 1) for one parameter. Philox4x32-10 (Salmon et al. 2011,
/// "Parallel random numbers: as easy as 1, 2, 3") counted by index and layer, then Box-Muller.
double standard_normal(std::int64_t seed, std::string_view parameter, std::int64_t layer,
                       std::int64_t index);

/// Index in the whole parameter of element `index` of the part held at `at`; both row-major.
std::int64_t global_index(const Shape& local, const std::optional<Split>& split,
                          const Coordinates& at, std::int64_t index);

/// A run of elements of one type in the parameter arena: of a segment, with the padding behind it.
struct TypedRange {
  std::int64_t begin = 0, elements = 0;
  DType type = DType::f32;
  Bytes offset;  ///< into the arena
};
/// The whole arena, from its start; of the parts that a rank owns (stage 3) one range of the type
/// that all have there.
std::vector<TypedRange> parameter_ranges(const Program& program, Bytes arena);

/// Fills the segments of an arena of f32; what lies between segments stays as it is. Parameters of
/// other types are these values rounded, and masters are these values.
/// The arena is whole, or the parts of it that this rank owns, one after the other (masters under
/// sharding, parameters in stage 3). The values do not depend on `threads` (0: all cores).
void initialize_parameters(const Program& program, const Coordinates& at, std::int64_t seed,
                           std::span<float> arena, std::int64_t threads = 1);

}  // namespace plimsoll
