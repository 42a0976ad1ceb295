// The strategy is lowered with memory for other numbers of rows.
#include "predict/expert_memory.h"

#include <fmt/format.h>

#include "predict/evaluate.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kEvenPercent = 100;

}  // namespace

std::optional<ExpertMemory> expert_memory(const Target& target, const Strategy& strategy) {
  if (!target.job.experts || strategy.ep == 1) return std::nullopt;
  const auto peak_with = [&](std::int64_t percent) {
    Strategy other = strategy;
    other.experts.rows_percent = percent;
    return largest(lay_out(target, other, Proof::none, AllocatorReplay::leave_out).stages,
                   &StagePrediction::peak);
  };
  ExpertMemory memory;
  memory.room = rows_room(target.job, target.framework(), strategy);
  memory.most_percent = most_rows_percent(*target.job.experts, strategy.ep);
  memory.drops = target.job.experts->drop_overflow;
  memory.balanced = peak_with(kEvenPercent);
  memory.roomy = peak_with(memory.room.percent);
  memory.most = peak_with(memory.most_percent);
  return memory;
}

std::string describe(const ExpertMemory& memory, const Experts& experts) {
  return fmt::format(
             "  experts     memory for {} % of even routing: peak {}; for even routing {}, for all "
             "rows that can come ({} %) {}{}\n",
             memory.room.percent, to_text(memory.roomy), to_text(memory.balanced),
             memory.most_percent, to_text(memory.most),
             memory.drops ? "; rows without room are dropped" : "") +
         describe(memory.room, experts);
}

FitsAnswer fits_answer(const Target& target, const Strategy& strategy,
                       std::span<const StagePrediction> stages) {
  const auto fullest = [&](std::span<const StagePrediction> of) {
    return filling_of(tightest_of(of), outside_program(target, strategy), target.reserve);
  };
  FitsAnswer answer{Fits::yes, fullest(stages), {}};
  if (fits_devices(target, strategy, stages)) return answer;
  answer.fits = Fits::no;
  const bool has_room =
      target.job.experts && strategy.ep > 1 && fits_host(target, strategy, stages);
  if (!has_room || rows_room(target.job, target.framework(), strategy).percent <= kEvenPercent)
    return answer;
  Strategy even = strategy;
  even.experts.rows_percent = kEvenPercent;
  answer.even = fullest(lay_out(target, even, Proof::none).stages);
  if (answer.even->fits()) answer.fits = Fits::with_even_routing;
  return answer;
}

std::string describe_both(const FitsAnswer& answer) {
  const auto size = [](const Filling& filling) {
    return fmt::format("{} ({:.1f} %)", to_text(filling.taken()), 100 * filling.share());
  };
  return fmt::format(
      "of a device's {}, it takes {} with even routing and {} with room for uneven rows",
      to_text(answer.fullest.capacity), size(*answer.even), size(answer.fullest));
}

}  // namespace plimsoll
