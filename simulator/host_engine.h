// Execution::host: the hosts do the work, so who arrives last at a rendezvous decides who is busy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/engine.h"

namespace plimsoll {

/// The items of some ranks, laid out once and run from any start times. Exact and deterministic: a
/// shift of all starts shifts all results.
class HostEngine {
 public:
  /// Every rank that issues rendezvous id is a participant of it.
  explicit HostEngine(std::span<const std::vector<Item>> ranks, const Waking& waking = {});

  /// starts[r]: when rank r's host begins. A rendezvous that never completes breaks an invariant
  /// (verify_together has refused such programs).
  EngineResult run(std::span<const Picoseconds> starts) const;

  struct FlatItem {
    Picoseconds dispatch, duration;
    std::uint32_t rendezvous;             ///< index into meetings_, or none
    std::uint32_t first_wait, last_wait;  ///< range of waits_
    std::uint32_t rank;
    std::uint32_t before, after;  ///< rendezvous next to this one on its stream, or none
  };
  struct Meeting {
    std::uint32_t participants = 0;
    Picoseconds duration;
  };

 private:
  friend class HostRun;
  struct Building;
  void add_rank(const std::vector<Item>& items, Building& building);

  Waking waking_;
  std::vector<std::uint32_t> first_item_;  ///< by rank, one more than ranks
  std::vector<FlatItem> items_;
  std::vector<std::uint32_t> waits_;  ///< indices into items_
  std::vector<Meeting> meetings_;
};

}  // namespace plimsoll
