// When a training step repeats, and how long it takes then.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// begun[k]: when each rank began step k; `ends`: when each has ended the last of them. Where all
/// ranks end as far apart as they began a step before, c steps ago, every later step follows in the
/// same cycle of c, and this is its mean length, rounded up. Steps are a max-plus recurrence, which
/// becomes periodic in this sense (Baccelli et al., Synchronization and Linearity, 1992, theorem
/// 3.112); c is nearly always 1.
std::optional<Picoseconds> cycle_time(std::span<const std::vector<Picoseconds>> begun,
                                      std::span<const Picoseconds> ends);

/// Mean length of the last `steps` steps, rounded up.
Picoseconds mean_step(std::span<const std::vector<Picoseconds>> begun,
                      std::span<const Picoseconds> ends, std::size_t steps);

}  // namespace plimsoll
