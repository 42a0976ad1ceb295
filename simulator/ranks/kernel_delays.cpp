// Keeps, by stream, what kernels may still lose to communications.
#include "simulator/ranks/kernel_delays.h"

#include <algorithm>
#include <bit>

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
  const auto s = std::size_t(stream);
  if (!(has_pending_ >> s & 1)) return;
  Queue& pending = pending_[s];
  while (!pending.empty() && pending.front().call <= call) pending.pop();
  if (pending.empty()) has_pending_ &= std::uint16_t(~(1u << s));
}

Picoseconds KernelDelays::compute(Picoseconds work) {
  computed_ += work;
  Picoseconds delay;
  for (std::uint32_t left = has_pending_; left != 0; left &= left - 1) {
    const auto s = std::size_t(std::countr_zero(left));
    Queue& pending = pending_[s];
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
    if (pending.empty()) has_pending_ &= std::uint16_t(~(1u << s));
  }
  return delay;
}

KernelDelays::Loss KernelDelays::loss_beside(Picoseconds time, double slowdown) {
  return {slowdown > 1 ? lost_of(time, slowdown) : Picoseconds(), slowdown};
}

void KernelDelays::add(Stream stream, std::size_t call, const Loss& loss) {
  if (loss.slowdown <= 1) return;
  const auto s = std::size_t(stream);
  pending_[s].push({call, loss.time, loss.slowdown});
  has_pending_ |= std::uint16_t(1u << s);
}

Picoseconds KernelDelays::communicate(Stream stream, std::size_t call, Picoseconds time,
                                      const OverlapCurves::Slowdowns& slowdowns) {
  add(stream, call, loss_beside(time, slowdowns.compute));
  const auto s = std::size_t(stream);
  const Picoseconds before = computed(s);
  computed_before_[s] = computed_;
  if (slowdowns.communication == 1) return {};
  return std::min(lost_of(before, slowdowns.communication),
                  longer_by(time, slowdowns.communication));
}

KernelDelays::Lost KernelDelays::lost() const {
  Lost lost = {};
  for (std::uint32_t left = has_pending_; left != 0; left &= left - 1) {
    const auto s = std::size_t(std::countr_zero(left));
    for (const Pending& pending : pending_[s].all()) lost[s] += pending.lost;
  }
  return lost;
}

KernelDelays::Totals KernelDelays::totals() const {
  Totals totals{lost(), {}};
  for (std::size_t s = 0; s < kStreams; ++s) totals.computed[s] = computed(s);
  return totals;
}

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
    Picoseconds grown = now.computed[s];
    if (!grow(grown, now.computed[s], cycle_begin_.computed[s])) return false;
    computed_before_[s] = computed_ - grown;
    Picoseconds none;
    Picoseconds& lost = pending_[s].empty() ? none : pending_[s].front().lost;
    if (!grow(lost, now.lost[s], cycle_begin_.lost[s])) return false;
  }
  return true;
}

}  // namespace plimsoll
