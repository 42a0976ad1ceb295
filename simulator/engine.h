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
  /// Items with the same id on different ranks meet; absent: runs alone.
  std::optional<std::uint64_t> rendezvous;
  std::vector<std::uint32_t> waits;  ///< earlier items of the same rank that must have finished
};

/// The device's rule for who does the work.
enum class Execution : std::uint8_t {
  /// Streams run by themselves; the host only issues (GPUs).
  streams,
  /// The host runs every item itself, in issue order, before it issues the next. A rendezvous is
  /// posted and runs on the core of the last arriver; of several that arrive at the same instant,
  /// each is charged (which keeps folded and unfolded simulations equal).
  host,
};

struct ItemTimes {
  Picoseconds posted, begin, end;  ///< begin of a rendezvous: the last arrival
};

struct EngineResult {
  std::vector<std::vector<ItemTimes>> times;  ///< [rank][item]
  std::vector<Picoseconds> host_end;          ///< when each host has issued (and, Execution::host, run) all
};

/// Exact and deterministic. `participants[id]` ranks must issue rendezvous id; a rendezvous that
/// never completes breaks an invariant (verify_together has refused such programs).
EngineResult run_engine(std::span<const std::vector<Item>> ranks, Execution execution);

}  // namespace plimsoll
