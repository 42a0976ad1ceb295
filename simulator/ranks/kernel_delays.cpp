// Keeps, by stream, what kernels may still lose to communications.
#include "simulator/ranks/kernel_delays.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

/// The part of a slowed time that is lost to the slowdown.
Picoseconds lost_of(Picoseconds time, double slowdown) {
  return to_picoseconds(time.seconds() * (1 - 1 / slowdown));
}

/// The time that is lost where all of `time` is slowed.
Picoseconds longer_by(Picoseconds time, double slowdown) {
  return to_picoseconds(time.seconds() * (slowdown - 1));
}

}  // namespace

void KernelDelays::wait_for(Stream stream, std::size_t call) {
  Queue& pending = pending_[std::size_t(stream)];
  while (!pending.empty() && pending.front().call <= call) pending.pop();
}

Picoseconds KernelDelays::compute(Picoseconds work) {
  for (Picoseconds& computed : computed_) computed += work;
  Picoseconds delay;
  for (Queue& pending : pending_) {
    while (!pending.empty()) {
      Pending& first = pending.front();
      const Picoseconds room = longer_by(work, first.slowdown) - delay;
      if (room <= Picoseconds(0)) break;
      const Picoseconds lost = std::min(first.lost, room);
      delay += lost;
      first.lost = first.lost - lost;
      if (first.lost > Picoseconds(0)) break;
      pending.pop();
    }
  }
  return delay;
}

Picoseconds KernelDelays::communicate(Stream stream, std::size_t call, Picoseconds time,
                                      const OverlapCurves::Slowdowns& slowdowns) {
  if (slowdowns.compute > 1) {
    pending_[std::size_t(stream)].push({call, lost_of(time, slowdowns.compute), slowdowns.compute});
  }
  const Picoseconds computed = std::exchange(computed_[std::size_t(stream)], {});
  if (slowdowns.communication == 1) return {};
  return std::min(lost_of(computed, slowdowns.communication),
                  longer_by(time, slowdowns.communication));
}

KernelDelays::Lost KernelDelays::lost() const {
  Lost lost = {};
  for (std::size_t s = 0; s < kStreams; ++s) {
    for (const Pending& pending : pending_[s].all()) lost[s] += pending.lost;
  }
  return lost;
}

KernelDelays::Totals KernelDelays::totals() const { return {lost(), computed_}; }

/// Losses that grew in the last cycle would have grown in each.
bool KernelDelays::leave_out(std::size_t cycles) {
  const auto grow = [&](Picoseconds& what, Picoseconds now, Picoseconds before) {
    std::int64_t more = 0;
    if (now < before || __builtin_mul_overflow((now - before).count(), std::int64_t(cycles), &more))
      return false;
    what += Picoseconds(more);
    return true;
  };
  const Totals now = totals();
  for (std::size_t s = 0; s < kStreams; ++s) {
    if (!grow(computed_[s], now.computed[s], cycle_begin_.computed[s])) return false;
    Picoseconds none;
    Picoseconds& lost = pending_[s].empty() ? none : pending_[s].front().lost;
    if (!grow(lost, now.lost[s], cycle_begin_.lost[s])) return false;
  }
  return true;
}

}  // namespace plimsoll
