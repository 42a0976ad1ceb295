// Fewer micro-batches: a step of few micro-batches that stands for one of many.
#pragma once

#include <cstdint>

namespace plimsoll {

/// The step of many has so many cycles more, in the middle, each of so many micro-batches. A cycle
/// is what every stage repeats: a micro-batch, or pp of them where stages have several chunks.
struct FewerMicroBatches {
  std::int64_t micro_batches_per_cycle = 1;
  std::int64_t cycles_left_out = 0;
};

/// Cycles that every stage of a step of so many stages must repeat to stand for a longer step:
/// until ranks have found their rhythm, some to see it, and as many for each of so many stages that
/// wait for each other. Where so few do not show it, the whole step is simulated. In the searches
/// of docs/performance.md 5 of some 150 steps did not.
constexpr std::int64_t cycles_shown(std::int64_t stages) { return 8 + stages / 8; }

}  // namespace plimsoll
