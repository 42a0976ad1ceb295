// Counts what a step is made of before anything is made.
#include "passes/strategy/step_rules.h"

#include <fmt/format.h>

namespace plimsoll {

Verdict step_is_bounded(const Job& job, const Strategy& strategy, std::int64_t programs) {
  const std::int64_t m = micro_batches(job, strategy), blocks = total_layers(job) + 2;
  __extension__ using Wide = __int128;
  const Wide passes = Wide{m} * blocks * programs;
  if (passes <= kMostLayerPasses) return Verdict::yes();
  return Verdict::no(fmt::format(
      "the step is too long to be lowered: {} micro-batches x {} layers with embedding and head{} "
      "are {} passes, at most {} are allowed; a larger micro_batch or a smaller global batch has "
      "fewer",
      m, blocks, programs > 1 ? fmt::format(" x {} ranks of a stage that differ", programs) : "",
      passes, kMostLayerPasses));
}

}  // namespace plimsoll
