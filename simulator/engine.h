// The event engine: hosts that issue items in order, streams that run them in order, and
// rendezvous that start when the last participant arrives. It knows no op kinds and no bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// Something a rank's host issues. Items of a rank are issued in order.
struct Item {
  std::uint32_t stream = 0;
  Picoseconds dispatch;  ///< host time to issue it, > 0
  Picoseconds duration;  ///< of a rendezvous: from the last arrival to completion
  /// Items with the same id on different ranks meet; absent: runs alone. A rank issues an id once.
  /// Where ranks give different durations for one rendezvous, the largest counts.
  std::optional<std::uint64_t> rendezvous;
  std::vector<std::uint32_t> waits;  ///< earlier items of the same rank that must have finished
};

/// The device's rule for who does the work.
enum class Execution : std::uint8_t {
  /// Streams run by themselves; the host only issues (GPUs). An item is ready when it was issued,
  /// its predecessor on the stream ended and its waits ended.
  streams,
  /// The host runs every item itself, in issue order, before it issues the next: it blocks until
  /// the waits ended, spends the dispatch time, then runs a local item. A rendezvous is posted; it
  /// arrives when the rank's previous rendezvous on that stream ended, and runs on the core of the
  /// last arriver: the host that posted last, or that ran what a posted one was held by. Of several
  /// that arrive at the same instant, each is charged (which keeps folded and unfolded simulations
  /// equal).
  host,
};

struct ItemTimes {
  Picoseconds posted, begin, end;  ///< begin of a rendezvous: the last arrival
};

struct EngineResult {
  std::vector<std::vector<ItemTimes>> times;  ///< [rank][item]
  /// When each host has issued (and, Execution::host, run) all.
  std::vector<Picoseconds> host_end;
  /// When each rank has finished: its host and every item of its own.
  std::vector<Picoseconds> rank_end;
};

/// The items of some ranks, laid out once and run from any start times. Exact and deterministic: a
/// shift of all starts shifts all results.
class Engine {
 public:
  /// Every rank that issues rendezvous id is a participant of it.
  Engine(std::span<const std::vector<Item>> ranks, Execution execution);

  /// starts[r]: when rank r's host begins; empty: all at 0. A rendezvous that never completes
  /// breaks an invariant (verify_together has refused such programs).
  EngineResult run(std::span<const Picoseconds> starts = {}) const;

  struct FlatItem {
    Picoseconds dispatch, duration;
    Picoseconds issued;                   ///< from the start of its rank, if the host never blocks
    std::uint32_t rendezvous;             ///< index into meetings_, or none
    std::uint32_t first_wait, last_wait;  ///< range of waits_
    std::uint32_t actor;
    std::uint32_t before, after;  ///< rendezvous next to this one on its stream, or none
  };
  struct Actor {  ///< works through a list of items: a host (Execution::host) or one stream
    std::uint32_t rank;
    std::uint32_t first_item, last_item;  ///< range of order_
  };
  struct Meeting {
    std::uint32_t participants = 0;
    Picoseconds duration;
  };

 private:
  friend class EngineRun;
  struct Building;
  void add_rank(const std::vector<Item>& items, Building& building);

  Execution execution_;
  std::vector<std::uint32_t> first_item_;  ///< by rank, one more than ranks
  std::vector<FlatItem> items_;
  std::vector<std::uint32_t> waits_;  ///< indices into items_
  std::vector<std::uint32_t> order_;  ///< items by actor
  std::vector<Actor> actors_;
  std::vector<Meeting> meetings_;
};

/// One run from time 0.
EngineResult run_engine(std::span<const std::vector<Item>> ranks, Execution execution);

}  // namespace plimsoll
