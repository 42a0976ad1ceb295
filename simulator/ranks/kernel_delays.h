// Kernel delays: what kernels and communications of one rank lose to each other while both run,
// told from the order in which the host issues them
// (docs/adr/0022-hosts-that-wait-links-that-are-shared.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
  /// The time that kernels may lose to a communication.
  struct Loss {
    Picoseconds time;     ///< all that they lose, if they run beside all of it
    double slowdown = 1;  ///< how many times as long they take beside it
  };
  /// Returns what kernels lose to a communication that takes `time`.
  static Loss loss_beside(Picoseconds time, double slowdown);
  /// Adds a communication that kernels do not slow.
  void add(Stream stream, std::size_t call, const Loss& loss);
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
    /// Frees the entries before the front once they are eight and half of all, so that few entries
    /// move, and rarely.
    void pop() {
      ++first_;
      if (first_ < items_.size() && (first_ < 8 || 2 * first_ < items_.size())) return;
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

  /// Kernels since the stream's last communication.
  Picoseconds computed(std::size_t stream) const { return computed_ - computed_before_[stream]; }

  static_assert(kStreams <= 16);
  std::array<Queue, kStreams> pending_;
  std::uint16_t has_pending_ = 0;  ///< a bit for each stream: its queue is not empty
  Picoseconds computed_;           ///< by all kernels so far
  std::array<Picoseconds, kStreams> computed_before_ =
      {};  ///< before a stream's last communication
  Totals cycle_begin_;
};

}  // namespace plimsoll
