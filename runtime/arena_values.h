// The host writes initial parameters into a rank's arena, and reads parameters, gradients and
// scalars from it between steps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/program.h"
#include "runtime/arena.h"

namespace plimsoll {

/// Returns the one buffer of a role that lives between steps.
std::optional<BufferId> persistent_of(const Program& program, TensorRole role);

/// Writes initial parameters and masters. Masters are the f32 values; parameters of other types are
/// these values rounded.
void initialize_arena(const Program& program, Arena& arena, const Coordinates& at,
                      std::int64_t seed);

/// Returns the values of the parameter arena as f32.
std::vector<float> parameter_values(const Program& program, const Arena& arena);
/// Returns the values of the step's gradients as f32.
std::vector<float> gradient_values(const Program& program, const Arena& arena);

using Scalars = std::array<float, std::size_t(kScalars)>;
/// Returns the address of the step's scalars, and null for a Program without any.
const std::byte* find_scalars(const Program& program, const Arena& arena, const Coordinates& at);

}  // namespace plimsoll
