// Fewer micro-batches: a step of few micro-batches that stands for a step of many.
#pragma once

#include <cstdint>

namespace plimsoll {

/// The step of many micro-batches has `cycles_left_out` more cycles in its middle, each of
/// `micro_batches_per_cycle`. A cycle is what every stage repeats: one micro-batch, or pp of them
/// where stages have several chunks.
struct FewerMicroBatches {
  std::int64_t micro_batches_per_cycle = 1;
  std::int64_t cycles_left_out = 0;
};

/// The cycles that every stage of a shorter step must repeat: some until ranks have found their
/// rhythm, some to show it, and more for stages that wait for each other. Where these cycles do not
/// show the rhythm, the whole step is simulated; in the searches of docs/results/speed.md that
/// happened in 5 of some 150 steps.
constexpr std::int64_t cycles_shown(std::int64_t stages) { return 8 + stages / 8; }

}  // namespace plimsoll
