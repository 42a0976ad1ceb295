// Rules of what backward repeats, module by module, and of losses that are computed part by part.
#pragma once

#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Returns whether some layer of the job has the module.
bool has_module(const Job& job, RecomputedModule module);

/// Returns loss_chunks for a rank's tokens of a sequence. It is the largest power of two that
/// divides the tokens and is at most vocabulary / hidden, rounded up. So a chunk's logits take
/// about as much as all hidden states (Liger Kernel, ops/fused_linear_cross_entropy.py,
/// inc_factor).
std::int64_t usual_loss_chunks(std::int64_t vocabulary, std::int64_t hidden, std::int64_t tokens);
/// Checks that the head can work on 1/loss_chunks of the tokens.
Verdict loss_chunks_are_legal(const Job& job, const Strategy& strategy);

/// Checks that recompute_modules goes with the strategy, and that the job has each module. Where
/// one module is part of another only the larger one is named, so that each choice has one text.
Verdict modules_are_legal(const Job& job, const Strategy& strategy);

/// Returns the modules without those that are part of another one of them.
SetOf<RecomputedModule> without_parts(SetOf<RecomputedModule> modules);

}  // namespace plimsoll
