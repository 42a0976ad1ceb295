// Cut reasons: why a search need not evaluate a strategy, in words for the user.
#pragma once

#include <array>
#include <cstddef>

namespace plimsoll {

enum CutReason : std::size_t {
  kPersistent,
  kInFlight,
  kTooLong,
  kWork,
  kBottleneck,
  kPipeline,
  kNoAllocator,
  kReasons
};
inline constexpr std::array<const char*, kReasons> kReasonTexts = {
    "memory bound: what lives between steps does not fit",
    "memory bound: with its micro-batches in flight it does not fit",
    "time bound: a step longer than a plan's timeline can show",
    "time bound of the layers' work: neither among the fastest nor on the Pareto front",
    "time bound of the slowest stage: neither among the fastest nor on the Pareto front",
    "time bound of the pipeline: neither among the fastest nor on the Pareto front",
    "time bound of a step whose allocator is not replayed: neither among the fastest nor on the "
    "Pareto front"};

/// Whether a reason rests on the step of a plan that was found before.
constexpr bool rests_on_a_plan(CutReason reason) {
  return reason == kWork || reason == kBottleneck || reason == kPipeline || reason == kNoAllocator;
}

}  // namespace plimsoll
