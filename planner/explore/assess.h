// Assess: the step time and the memory of strategies, as far as a search needs them.
#pragma once

#include <functional>
#include <span>

#include "planner/explore/runners_up.h"

namespace plimsoll {

/// Whether a candidate is worth a replay of its allocator, by its step and its live bytes.
using IsWorthReplay = std::function<bool(const Candidate&)>;

/// Lowers and simulates a strategy. A candidate that does not fit has memory only. An allocator is
/// replayed only where it decides whether the strategy fits; elsewhere all is taken to fit until
/// confirm_memory(). With `is_worth`, the step is found first, and a candidate that is not worth a
/// replay is taken to fit, too.
Candidate assess(const Target& target, const Strategy& strategy, std::size_t index,
                 const IsWorthReplay& is_worth = {});

/// Replays the framework's allocator for candidates whose memory is not known yet. A replay costs
/// most of all, so a search asks for it last. A candidate that turns out not to fit keeps memory
/// only, that of its stages up to the first that does not fit. Candidates whose step is too long,
/// and frameworks with an arena, stay as they are. Stages that can hardly be the fullest are not
/// replayed.
void confirm_memory(const Target& target, std::span<Candidate> candidates, std::int64_t threads);

/// Returns the bytes that a feasible candidate takes of a device, on the stage that takes most. The
/// reserve is no part of it.
Bytes taken_by(const Target& target, const Candidate& candidate);

}  // namespace plimsoll
