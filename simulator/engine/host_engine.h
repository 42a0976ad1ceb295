// Hosts that run local items themselves. Execution::host: they carry the rendezvous, too, so who
// arrives last decides who is busy; process_run.h has Execution::processes on the same items.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/engine/engine.h"

namespace plimsoll {

/// The items of some ranks, laid out once and run from any start times. Exact and deterministic: a
/// shift of all starts shifts all results.
class HostEngine {
 public:
  /// Every rank that issues rendezvous id is a participant of it. Without `besides` nothing slows
  /// anything.
  explicit HostEngine(std::span<const std::vector<Item>> ranks, const Waking& waking = {},
                      std::span<const Beside> besides = {});

  /// starts[r]: when rank r's host begins. A rendezvous that never completes breaks an invariant
  /// (verify_together has refused such programs).
  EngineResult run(std::span<const Picoseconds> starts) const;

  struct FlatItem {
    Picoseconds dispatch, duration;
    std::uint32_t rendezvous;             ///< index into meetings_, or none
    std::uint32_t first_wait, last_wait;  ///< range of waits_
    std::uint32_t rank;
    std::uint32_t before, after;  ///< rendezvous next to this one on its stream, or none
    Work work;
    bool sends, receives;
  };
  struct Meeting {
    std::uint32_t participants = 0;
    Picoseconds duration;
    Beside beside;  ///< the slowest of its participants'
  };

 private:
  friend class HostRun;
  friend class ProcessRun;
  struct Building;
  void add_rank(const std::vector<Item>& items, std::span<const Beside> besides,
                Building& building);
  /// The result of a run in which each host has come to `next_item` by `clock`.
  EngineResult result(const std::vector<ItemTimes>& times, std::span<const std::uint32_t> next_item,
                      std::span<const Picoseconds> clock) const;

  Waking waking_;
  std::vector<std::uint32_t> first_item_;  ///< by rank, one more than ranks
  std::vector<FlatItem> items_;
  std::vector<std::uint32_t> waits_;  ///< indices into items_
  std::vector<Meeting> meetings_;
};

}  // namespace plimsoll
