// Call path: the longest path through some calls of one rank, by the simulator's rules for who does
// the work (Execution in simulator/engine/engine.h), everything outside those calls being over long
// ago unless said otherwise. Leaving out what came before and whom a communication waits for only
// shortens a longest path, so every time here is at most the simulated one.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "planner/bounds/least_costs.h"
#include "simulator/ranks/kernel_delays.h"

namespace plimsoll {

/// Before everything: what nobody has to wait for.
inline constexpr Picoseconds kLongAgo{-(std::int64_t{1} << 60)};

/// `count` times `one`. Throws InfeasibleError beyond what the clock holds.
Picoseconds repeated(Picoseconds one, std::int64_t count);

/// Routines of one Program with what their ops take at least, the device and the host.
struct CostedProgram {
  const Program* program = nullptr;
  std::vector<std::vector<Picoseconds>> durations, dispatch;  ///< [routine][op]
  std::vector<Picoseconds> computes;  ///< [routine]: what its ops on the compute stream take alone
  std::vector<double> slowdown;       ///< [routine] that is one communication; else 0
  Picoseconds dispatch_call;
  bool host_executes = false;
};
/// Routines that no call uses stay without durations.
CostedProgram cost_of(const Program& program, const LeastCosts& costs);
/// Host time to issue a call.
Picoseconds dispatch_of(const CostedProgram& costed, RoutineId routine);

/// Whether ranks of several stages take part in this collective.
bool crosses_stages(const Op& op);

class CallPath {
 public:
  /// `now`: when the compute stream (or the host that executes) is free. `issued`: when the host
  /// has issued all earlier calls; means nothing where the host executes.
  CallPath(const CostedProgram& costed, Picoseconds now, Picoseconds issued);

  /// The call at `index`; those it waits for that were not run here are over at `others`.
  void run(std::size_t index, Picoseconds others = kLongAgo);
  /// In the next call that is run, the collective at `which`, of those that other stages take part
  /// in, is over at `end` at the earliest.
  void stages_meet_until(std::size_t which, Picoseconds end) { floor_ = {which, end}; }

  Picoseconds now() const { return clocks_[std::size_t(Stream::compute)]; }  ///< compute is free
  Picoseconds everything_ended() const;  ///< all calls run, and the host has issued them
  /// When an op of a call that was run here ended.
  Picoseconds end_of(std::size_t call, std::size_t op) const { return calls_.at(call).ops[op]; }
  /// When the collectives of the last call that other stages take part in were posted.
  const std::vector<Picoseconds>& posted() const { return posted_; }

 private:
  struct Times {
    std::vector<Picoseconds> ops;  ///< ends, by op; empty where it was not run here
    Picoseconds all = kLongAgo;
  };
  Picoseconds awaited(const Call& call) const;
  void delay(std::size_t index);
  Picoseconds end_of_op(const Op& op, Picoseconds ready, Picoseconds dispatch,
                        Picoseconds duration);

  const CostedProgram& costed_;
  std::array<Picoseconds, kStreams> clocks_;
  Picoseconds issued_, ended_ = kLongAgo;
  std::optional<std::pair<std::size_t, Picoseconds>> floor_;
  std::vector<Picoseconds> posted_;
  std::map<std::size_t, Times> calls_;
  KernelDelays delays_;  ///< by the communications of the calls that were run
};

}  // namespace plimsoll
