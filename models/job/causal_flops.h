// Causal FLOPs: what causal attention masks, for the convention of MFU that does not count it.
#pragma once

#include "models/job/job.h"

namespace plimsoll {

/// Returns the part of forward_matmul_flops_per_sequence() that causal attention masks: half of the
/// FLOPs of causal attention. It is 0 for jobs without causal attention. MFU counts these FLOPs
/// (docs/glossary.md); tables of runs with long sequences often leave them out.
Flops masked_flops_per_sequence(const Job& job);

/// Returns the FLOPs of one attention op of a model's graph, causal or not, in full; 0 for all
/// other ops.
Flops attention_flops(const Graph& graph, const Op& op, std::int64_t sequence);

}  // namespace plimsoll
