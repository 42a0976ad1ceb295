// The ops of ranks whose hosts run local ops themselves, on CPU cores. Two engines run them:
// thread_engine.h and process_engine.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/engine/engine.h"

namespace plimsoll {

/// The ops of some ranks, laid out once and run from any start times.
struct CoreOps {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Op {
    Picoseconds dispatch, duration;
    std::uint32_t rendezvous = kNone;             ///< index of `rendezvous`; kNone: a local op
    std::uint32_t first_wait = 0, last_wait = 0;  ///< range of `waits`
    std::uint32_t rank = 0;
    std::uint32_t before = kNone, after = kNone;  ///< the rendezvous next to it on its stream
    LocalWork work = LocalWork::memory;
    bool sends = false, receives = false;
  };
  struct Rendezvous {
    std::uint32_t participants = 0;
    Picoseconds duration;
    MutualSlowdown slowdown;  ///< the slowest of its participants'
  };

  /// Every rank that issues a rendezvous takes part in it. Without `slowdowns` nothing slows
  /// anything.
  explicit CoreOps(std::span<const std::vector<TimedOp>> ranks, const WakeUpCost& wake_up = {},
                   std::span<const MutualSlowdown> slowdowns = {});
  std::size_t ranks() const { return first_op.size() - 1; }

  /// How far a run has got with an op.
  enum class State : std::uint8_t { open, posted, ended };
  /// The result of a run whose ops have all ended. Host r has got to op next_op[r] at the time
  /// clock[r]; a host that has not got through all its ops breaks an invariant.
  EngineResult result(const std::vector<OpTimes>& times, std::span<const State> states,
                      std::span<const std::uint32_t> next_op,
                      std::span<const Picoseconds> clock) const;

  WakeUpCost wake_up;
  std::vector<std::uint32_t> first_op;  ///< by rank, with one more behind the last rank
  std::vector<Op> ops;
  std::vector<std::uint32_t> waits;  ///< indices into `ops`
  std::vector<Rendezvous> rendezvous;

 private:
  struct Layout;
  void add_rank(const std::vector<TimedOp>& timed_ops, std::span<const MutualSlowdown> slowdowns,
                Layout& layout);
  std::uint32_t add_to_rendezvous(const TimedOp& timed, std::span<const MutualSlowdown> slowdowns,
                                  Op& op, Layout& layout);
};

}  // namespace plimsoll
