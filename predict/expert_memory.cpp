// The strategy is lowered with memory for other numbers of rows.
#include "predict/expert_memory.h"

#include <fmt/format.h>

#include "predict/evaluate.h"

namespace plimsoll {

std::optional<ExpertMemory> expert_memory(const Target& target, const Strategy& strategy) {
  if (!target.job.experts || strategy.ep == 1) return std::nullopt;
  const auto peak_with = [&](std::int64_t percent) {
    Strategy other = strategy;
    other.expert_rows_percent = percent;
    return largest(lay_out(target, other, Proof::none, AllocatorReplay::leave_out).stages,
                   &StagePrediction::peak);
  };
  ExpertMemory memory;
  memory.rows_percent = strategy.expert_rows_percent;
  memory.most_percent = 100 * strategy.ep;
  memory.drops = target.job.experts->drop_overflow;
  memory.balanced = peak_with(100);
  memory.stated = peak_with(memory.rows_percent);
  memory.most = peak_with(memory.most_percent);
  return memory;
}

std::string describe(const ExpertMemory& memory) {
  return fmt::format(
      "  experts     memory for {} % of even routing: peak {}; for even routing {}, for all rows at "
      "one rank ({} %) {}{}\n",
      memory.rows_percent, to_text(memory.stated), to_text(memory.balanced), memory.most_percent,
      to_text(memory.most), memory.drops ? "; more rows than stated are dropped" : "");
}

}  // namespace plimsoll
