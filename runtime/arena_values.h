// Values that a rank's arena holds between steps, on the host: initial parameters are written,
// parameters, gradients and scalars are read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/program.h"
#include "runtime/arena.h"

namespace plimsoll {

/// The one buffer of a role that lives between steps.
std::optional<BufferId> persistent_of(const Program& program, TensorRole role);

/// Parameters and masters; masters start as the f32 values of which the parameters are the rounded
/// ones.
void initialize_arena(const Program& program, Arena& arena, const Coordinates& at,
                      std::int64_t seed);

/// The values of the parameter arena, whatever its types.
std::vector<float> parameter_values(const Program& program, const Arena& arena);
/// The values of the step's gradients, whatever their type.
std::vector<float> gradient_values(const Program& program, const Arena& arena);

using Scalars = std::array<float, std::size_t(kScalars)>;
/// Where the step's scalars lie; null in a Program without any.
const std::byte* find_scalars(const Program& program, const Arena& arena, const Coordinates& at);

}  // namespace plimsoll
