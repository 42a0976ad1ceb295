// How long tests wait for what has to end well.
#pragma once

#include <chrono>

namespace plimsoll {

/// A deadline that no run reaches which goes on, however slow the machine and the sanitizers.
inline constexpr std::chrono::milliseconds kPatient = std::chrono::minutes(20);

}  // namespace plimsoll
