// Offload rules say which strategies let the host update parameters, and how many it updates, and
// which let its memory hold activations and parameters.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Checks the rules of offload_optimizer_percent and overlap_offload. The host's update is one of
/// arenas (flatten fused, sharding_owner elements) by AdamW or SGD, with gradients, masters and
/// moments in f32, and parameters of one type.
Verdict offload_is_legal(const Job& job, const Strategy& strategy);

/// Checks the rules of paged_states: one update of arenas by AdamW, which writes the parameters,
/// too.
Verdict paging_is_legal(const Job& job, const Strategy& strategy);

/// Checks the rules of offload_activations_percent and offload_activations_layers.
Verdict activations_are_legal(const Job& job, const Strategy& strategy);

/// Checks the rules of offload_parameters. The host updates the trained parameters in its memory,
/// so that either it updates all (offload_optimizer_percent 100), or only frozen ones are there.
Verdict parameters_are_legal(const Job& job, const Strategy& strategy);

/// Returns whether trained parameters are in the host's memory.
bool keeps_trained_on_host(const Strategy& strategy);

/// Returns how many of `updated` elements the host updates, rounded up.
std::int64_t host_elements(const Strategy& strategy, std::int64_t updated);

}  // namespace plimsoll
