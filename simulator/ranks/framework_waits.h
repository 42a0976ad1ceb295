// Framework waits: waits of the host or of the compute stream that Programs do not have and a
// framework adds (FrameworkHost::waits). Execution::streams only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/ranks/expand.h"

namespace plimsoll {

/// Follows the calls of one rank in issue order. The caller numbers events: an event is the end of
/// an op, or of all ops of a call.
class FrameworkWaits {
 public:
  using Event = std::uint32_t;
  explicit FrameworkWaits(const Expansion& expansion);

  /// Returns the events that the first ops of this call, the next one of the Program, must wait
  /// for as well.
  std::vector<Event> before_call(std::size_t call);
  /// Returns the events that the host waits for before it issues this op; empty: it goes on. Ask
  /// once for each op.
  std::vector<Event> before_op(const Op& op);

  /// Says that the host has issued an op, whose end is the event `end`. `host_waits`: the host
  /// waits for that end before it issues the next op.
  void issued(const Op& op, bool host_waits, Event end);
  /// Says that the host has issued a whole call of this routine, whose end is the event `end`. The
  /// call contains the host's waits for its ops except the last. The host waits for the last op, if
  /// the framework does, before it issues the next op.
  void issued(RoutineId routine, Event end);

 private:
  /// The effects of each call of a routine.
  struct Effects {
    bool compute = false;
    bool prepare_gradients = false;
    bool host_waits = false;    ///< for the last op
    std::uint32_t streams = 0;  ///< one bit each
  };
  bool begins_forward(std::size_t call) const;

  const Expansion& expansion_;
  std::vector<Effects> effects_;                     ///< by routine
  std::array<std::optional<Event>, kStreams> last_;  ///< issued on each stream
  std::optional<Event> host_waits_for_;              ///< before the next op
  bool exchanges_ = false;                           ///< transfers were issued last
  bool prepares_gradients_ = false;                  ///< the call that is being issued does
  bool reads_batch_ = false;                         ///< before the next op
  std::vector<Event> transfers_;                     ///< that compute has not waited for
};

}  // namespace plimsoll
