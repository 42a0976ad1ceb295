// Waits of the host or the compute stream that Programs do not have and a framework adds
// (Framework::transfers_hold, host_reads_norm, host_reads_batch, host_waits_for_gathers).
// Execution::streams.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/ranks/expand.h"

namespace plimsoll {

/// Follows the calls of one rank in issue order. Events are the caller's: the end of an op, or of
/// all ops of a call.
class FrameworkWaits {
 public:
  using Event = std::uint32_t;
  explicit FrameworkWaits(const Expansion& expansion);

  /// Events that the first ops of the next call, one of the Program's, wait for, too.
  std::vector<Event> before_call(std::size_t call);
  /// Events that the host waits for before it issues the next op; empty: it goes on. Asked once for
  /// an op.
  std::vector<Event> before_op(const Op& op);

  /// `host_waits`: before the next op the host waits for this one.
  void issued(const Op& op, bool host_waits, Event end);
  /// A whole call of this routine, whose own host waits are over.
  void issued(RoutineId routine, Event end);

 private:
  /// The effects of each call of a routine.
  struct Does {
    bool compute = false;
    bool prepare_gradients = false;
    std::uint32_t streams = 0;  ///< one bit each
  };
  bool begins_forward(std::size_t call) const;

  const Expansion& expansion_;
  std::vector<Does> does_;                           ///< by routine
  std::array<std::optional<Event>, kStreams> last_;  ///< issued on each stream
  std::optional<Event> own_;                         ///< what the host waits for next
  bool exchanges_ = false;                           ///< transfers were issued last
  bool prepares_gradients_ = false;                  ///< by the call that is being issued
  bool reads_batch_ = false;                         ///< before the next op
  std::vector<Event> transfers_;                     ///< that compute has not waited for
};

}  // namespace plimsoll
