// Delays of kernels and of the communications of their rank while both run, told from the order in
// which a host issues them (docs/adr/0028-what-streams-lose-to-each-other.md).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/units.h"
#include "graph/op.h"
#include "simulator/costs/shape_curves.h"

namespace plimsoll {

/// The calls of one rank in issue order: those that compute, and those that are one communication
/// on a stream of their own.
class KernelDelays {
 public:
  /// Later calls wait until that call on `stream` has ended, and so for all calls before it there.
  void wait_for(Stream stream, std::size_t call);
  /// How much longer kernels that take `work` alone take beside the communications before them that
  /// nothing has waited for: as long as these last, each makes them take `compute` times as long.
  Picoseconds compute(Picoseconds work);
  /// How much longer a communication that takes `time` alone waits for its stream: of what was
  /// computed since the one before it there a part went into slowing it, but no more than if
  /// kernels ran beside all of it.
  Picoseconds communicate(Stream stream, std::size_t call, Picoseconds time,
                          const OverlapCurves::Slowdowns& slowdowns);

  /// The time, by stream, that kernels may still lose to communications that nothing has waited
  /// for.
  using Lost = std::array<Picoseconds, kStreams>;
  Lost lost() const;
  /// How many communications of a stream there is memory for.
  std::size_t room(Stream stream) const { return pending_[std::size_t(stream)].room(); }

  /// Before the first call of each of several cycles of the same calls ...
  void begin_cycle() { cycle_begin_ = totals(); }
  /// ... and behind the last call of one, where so many more of them are left out. False: they are
  /// not all alike, since what is not used up grows less, or it is more than can be counted.
  bool leave_out(std::size_t cycles);

 private:
  struct Pending {
    std::size_t call = 0;
    Picoseconds lost;  ///< at most, by kernels from here on
    double slowdown = 1;
  };
  /// First in, first out; takes no memory while it is empty for the first time.
  class Queue {
   public:
    bool empty() const { return first_ == items_.size(); }
    Pending& front() { return items_[first_]; }
    void push(const Pending& pending) { items_.push_back(pending); }
    /// Entries that were taken are given back once they are half of all: each item moves once at
    /// most, on average.
    void pop() {
      if (2 * ++first_ < items_.size()) return;
      items_.erase(items_.begin(), items_.begin() + std::ptrdiff_t(first_));
      first_ = 0;
    }
    std::size_t room() const { return items_.capacity(); }
    std::span<const Pending> all() const { return std::span(items_).subspan(first_); }

   private:
    std::vector<Pending> items_;
    std::size_t first_ = 0;
  };
  struct Totals {
    Lost lost = {};
    std::array<Picoseconds, kStreams> computed = {};
  };
  Totals totals() const;

  std::array<Queue, kStreams> pending_;
  std::array<Picoseconds, kStreams> computed_ = {};  ///< since the stream's last communication
  Totals cycle_begin_;
};

}  // namespace plimsoll
