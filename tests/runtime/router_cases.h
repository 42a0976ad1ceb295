// Cases of routers, whose choices cases of experts' rows take.
#pragma once

#include <string>

#include "tests/runtime/op_cases.h"

namespace plimsoll {

inline constexpr std::int64_t kExperts = 8, kChosen = 3;

/// Returns the operand as one of int32 numbers.
Operand whole_numbers(Operand operand);
/// The choices of every token by a router with these parameters.
OpCase route_case(const OpSizes& z, const std::string& name, RouteParams params);
/// The choices that a capacity keeps; 0: all.
OpCase limit_case(const OpSizes& z, const std::string& name, std::int64_t capacity);

}  // namespace plimsoll
