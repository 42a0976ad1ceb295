// Compares the cycles of a run with each other.
#include "planner/bounds/pipeline_rhythm.h"

#include <algorithm>
#include <limits>

#include "passes/strategy/pipeline_order.h"

namespace plimsoll {
namespace {

/// The cycles until stages have found their rhythm, beside those that fill and drain the pipeline.
constexpr std::int64_t kToFindRhythm = 3;

/// Some cycles of a stage that follow each other.
class Cycles {
 public:
  Cycles(const StageRecord& record, std::int64_t first, std::int64_t length)
      : record_(record),
        first_(std::size_t(first)),
        length_(std::size_t(length)),
        count_((record.actions.size() - first_) / length_) {}

  std::size_t count() const { return count_; }
  Picoseconds begin_of(std::size_t cycle) const { return at(cycle, 0).began; }
  Picoseconds end_of(std::size_t cycle) const { return at(cycle, length_ - 1).clock; }
  /// Returns how much later the next cycle is, if all its actions are later by the same time.
  bool is_followed(std::size_t cycle, Picoseconds by) const {
    for (std::size_t a = 0; a < length_; ++a) {
      if (later(at(cycle, a), by) != at(cycle + 1, a)) return false;
    }
    return record_.lost[cycle] == record_.lost[cycle + 1];
  }

 private:
  const ActionTimes& at(std::size_t cycle, std::size_t action) const {
    return record_.actions[first_ + cycle * length_ + action];
  }
  const StageRecord& record_;
  std::size_t first_, length_, count_;
};

/// Some time of a stage.
struct Span {
  Picoseconds from, to;
};

/// Returns the longest span in which cycles follow each other at this pace.
Span rhythmic_span(const Cycles& cycles, Picoseconds period) {
  Span best;
  for (std::size_t c = 0; c + 1 < cycles.count();) {
    std::size_t end = c;
    while (end + 1 < cycles.count() && cycles.is_followed(end, period)) ++end;
    const Span span{cycles.begin_of(c), cycles.end_of(end)};
    if (end > c && span.to - span.from > best.to - best.from) best = span;
    c = std::max(end, c + 1);
  }
  return best;
}

/// Whether the host of a stage delays nothing after this time, or issues a cycle in this period. A
/// host that waits for ops was compared with the actions.
bool host_keeps_pace(const StageRecord& record, Picoseconds from, Picoseconds period) {
  if (!record.issued_per_cycle || record.issued_per_cycle == period) return true;
  return *record.issued_per_cycle < period &&
         std::ranges::none_of(record.actions, [&](const ActionTimes& action) {
           return action.clock > action.ended && action.clock > from;
         });
}

}  // namespace

std::int64_t PipelineCycles::first_action(const Strategy& strategy, std::int64_t stage) const {
  if (strategy.virtual_stages == 1) {
    // The first backwards with split gradients have no weight gradients with them.
    const std::int64_t warm_up = strategy.pp - stage - 1, split = warm_up + 2 * stage;
    return strategy.schedule == Schedule::zb_h2   ? 2 * split
           : strategy.schedule == Schedule::zb_h1 ? split
                                                  : warm_up;
  }
  return 2 * (strategy.pp - stage - 1) + (strategy.virtual_stages - 1) * strategy.pp;
}

PipelineCycles pipeline_cycles(const Strategy& strategy, std::int64_t micro_batches) {
  PipelineCycles cycles;
  if (strategy.schedule == Schedule::gpipe || is_placed_as_v(strategy.schedule)) return cycles;
  const bool chunks = strategy.virtual_stages > 1;
  cycles.micro_batches = chunks ? strategy.pp : 1;
  cycles.actions = chunks ? 2 * strategy.pp * strategy.virtual_stages
                          : (splits_backward(strategy.schedule) ? 3 : 2);
  const std::int64_t sends = chunks ? strategy.pp * strategy.virtual_stages : 1;
  // As many micro-batches as fill the pipeline.
  const std::int64_t full = strategy.schedule == Schedule::zb_h2 ? 2 * strategy.pp : strategy.pp;
  cycles.in_flight = (chunks ? 3 : full + 1) + strategy.send_slots / sends + 1;
  const std::int64_t few = 2 * (chunks ? 2 : full) + cycles.in_flight + kToFindRhythm;
  const std::int64_t all = micro_batches / cycles.micro_batches;
  if (6 * few <= 5 * all) cycles.left_out = all - few;
  return cycles;
}

ActionTimes later(const ActionTimes& times, Picoseconds by) {
  return {times.began + by, times.ended + by, times.received + by, times.clock + by,
          times.issued + by};
}

void StageRecord::clear() {
  actions.clear();
  lost.clear();
  issued_per_cycle = {};
}

std::optional<Picoseconds> rhythm(const Strategy& strategy, const PipelineCycles& cycles,
                                  std::span<const StageRecord> stages) {
  Picoseconds period;
  Span all{Picoseconds(std::numeric_limits<std::int64_t>::min()),
           Picoseconds(std::numeric_limits<std::int64_t>::max())};
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Cycles of(stages[s], cycles.first_action(strategy, std::int64_t(s)), cycles.actions);
    if (s == 0) {
      const std::size_t late = of.count() * 2 / 3;
      period = of.begin_of(late) - of.begin_of(late - 1);
      if (period <= Picoseconds()) return std::nullopt;
    }
    const Span own = rhythmic_span(of, period);
    all = {std::max(all.from, own.from), std::min(all.to, own.to)};
  }
  if (all.to - all.from < Picoseconds(cycles.in_flight * period.count())) return std::nullopt;
  for (const StageRecord& stage : stages) {
    if (!host_keeps_pace(stage, all.from, period)) return std::nullopt;
  }
  return period;
}

}  // namespace plimsoll
