// Steady state: the time of a step among many equal ones, where ranks begin each step when they
// have ended the one before.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// begun[k] says when each rank began step k, and `ends` when each rank has ended the last step.
/// If all ranks end as far apart as they began an earlier step, c steps ago, all later steps repeat
/// these c steps. Returns their mean length, rounded up; nothing where no step was like that. Steps
/// are a max-plus recurrence, which becomes periodic in this sense (Baccelli et al.,
/// Synchronization and Linearity, 1992, theorem 3.112). c is nearly always 1.
std::optional<Picoseconds> cycle_time(std::span<const std::vector<Picoseconds>> begun,
                                      std::span<const Picoseconds> ends);

/// Returns the mean length of the last `steps` steps, rounded up.
Picoseconds mean_step(std::span<const std::vector<Picoseconds>> begun,
                      std::span<const Picoseconds> ends, std::size_t steps);

}  // namespace plimsoll
