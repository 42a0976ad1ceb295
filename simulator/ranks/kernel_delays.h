// Kernel delays: what kernels and communications of one rank lose to each other while both run,
// told from the order in which the host issues them
// (docs/adr/0028-what-streams-lose-to-each-other.md).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/units.h"
#include "graph/op.h"
#include "simulator/costs/shape_curves.h"

namespace plimsoll {

/// Follows the calls of one rank in issue order: calls that compute, and calls that are one
/// communication on a stream of their own.
class KernelDelays {
 public:
  /// Later calls wait until `call`, a communication on `stream`, has ended. The communications
  /// before it on that stream have then ended, too.
  void wait_for(Stream stream, std::size_t call);
  /// Returns the extra time of kernels that take `work` alone. Earlier communications that nothing
  /// has waited for may still be running. While one runs, the kernels take `compute` times as long
  /// (OverlapCurves::Slowdowns).
  Picoseconds compute(Picoseconds work);
  /// Returns how much later `stream` is ready for a communication that takes `time` alone. Kernels
  /// since the stream's communication before have slowed the stream, and a part of their time is
  /// lost to it. The delay is at most what `time` would lose if kernels ran beside all of it.
  Picoseconds communicate(Stream stream, std::size_t call, Picoseconds time,
                          const OverlapCurves::Slowdowns& slowdowns);

  /// By stream: the time that kernels may still lose to communications that nothing has waited for.
  using Lost = std::array<Picoseconds, kStreams>;
  Lost lost() const;
  /// How many communications of a stream there is memory for.
  std::size_t room(Stream stream) const { return pending_[std::size_t(stream)].room(); }

  /// To be called before the first call of each of several cycles of the same calls.
  void begin_cycle() { cycle_begin_ = totals(); }
  /// To be called behind the last call of a cycle, where `cycles` more of them are left out.
  /// Returns false where the cycles are not all alike, because unused losses shrink from cycle to
  /// cycle, or where the losses are too large to count.
  bool leave_out(std::size_t cycles);

 private:
  struct Pending {
    std::size_t call = 0;
    Picoseconds lost;  ///< at most, by kernels from here on
    double slowdown = 1;
  };
  /// First in, first out. It takes no memory before the first push.
  class Queue {
   public:
    bool empty() const { return first_ == items_.size(); }
    Pending& front() { return items_[first_]; }
    void push(const Pending& pending) { items_.push_back(pending); }
    /// Frees the entries before the front once they are half of all, so that each entry moves once
    /// at most, on average.
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
