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

/// One run of ops, as far as both engines keep it: hosts, what they wait for, and times.
class CoreRun {
 protected:
  static constexpr std::uint32_t kNone = CoreOps::kNone;
  /// How far a run has got with an op.
  enum class State : std::uint8_t { open, posted, ended };
  struct Host {
    Picoseconds clock;  ///< when it is free
    std::uint32_t next_op = 0;
    std::uint32_t waits_done = 0;
    std::uint32_t next_waiter = kNone;  ///< list of the hosts blocked on one op
    void next() {
      ++next_op;
      waits_done = 0;
    }
  };

  CoreRun(const CoreOps& ops, std::span<const Picoseconds> starts);
  /// Blocks the host until what its next op waits for has ended. Returns whether all has.
  bool wait_for_all(std::uint32_t rank, const CoreOps::Op& op);
  /// Ends the op. Hosts that waited for it go into `free`.
  void finish(std::uint32_t op, Picoseconds end, std::vector<std::uint32_t>& free);
  bool has_ended(std::uint32_t op) const { return states_[op] == State::ended; }
  /// The result of a run whose ops have all ended. A host that has not got through all its ops
  /// breaks an invariant.
  EngineResult result() const;

  const CoreOps& ops_;
  std::vector<OpTimes> times_;
  std::vector<State> states_;
  std::vector<std::uint32_t> waiter_;  ///< by op: head of the list of blocked hosts
  std::vector<Host> hosts_;            ///< by rank
};

}  // namespace plimsoll
