// An initial parameter value depends only on the seed, the parameter's name, its layer and the
// element's index in the whole (unsplit) parameter. So every strategy starts the same model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/grid.h"
#include "graph/program.h"
#include "models/job/philox.h"

namespace plimsoll {

/// Returns element `index` (row-major) of N(0, 1) for one parameter, by Philox4x32-10 (Salmon et
/// al. 2011, "Parallel random numbers: as easy as 1, 2, 3") counted by index and layer, and
/// Box-Muller.
double standard_normal(std::int64_t seed, std::string_view parameter, std::int64_t layer,
                       std::int64_t index);

/// Sets `values` to the initial values of elements of a segment, from its element `first` on.
/// Padding is zero, so that norms of whole tensors do not depend on the split.
void initialize_segment(const Segment& segment, std::int64_t first, const Coordinates& at,
                        std::int64_t seed, std::span<float> values);

/// Fills the segments of an f32 arena with their initial values, as fill_segments() does.
void initialize_parameters(const Program& program, const Coordinates& at, std::int64_t seed,
                           std::span<float> arena, std::int64_t threads = 1);

}  // namespace plimsoll
