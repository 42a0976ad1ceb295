// Attention over parts of sequences, put together again.
#pragma once

#include "passes/strategy/strategy.h"
#include "runtime/backend.h"
#include "tests/runtime/attention_cases.h"

namespace plimsoll {

/// Runs on a backend what each of `ranks` runs of one attention, forward and backward, with tests
/// in place of collectives. Results and gradients of all ranks together are those of the float64
/// reference of whole sequences. There are fewer key heads than heads, or values have a width of
/// their own.
void expect_parts_make_the_whole(Backend& backend, ContextExchange exchange, std::int64_t ranks,
                                 const AttentionSizes& sizes, DType type);

}  // namespace plimsoll
