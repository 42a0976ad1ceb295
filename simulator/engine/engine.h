// The event engine: hosts that issue items in order, streams that run them in order, and
// rendezvous that start when the last participant arrives. It knows no op kinds and no bytes.
// host_engine.h and stream_engine.h hold the two rules for who does the work.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// Kinds of local items that slow, and are slowed by, communications differently.
enum class Work : std::uint8_t { matmul, memory };
inline constexpr std::size_t kWorks = 2;

/// Speeds are counted in parts of this one, so that arithmetic stays exact.
inline constexpr std::int64_t kFullSpeed = std::int64_t{1} << 16;

/// Execution::processes: what a rendezvous and the local items of its ranks make of each other.
struct Beside {
  /// Speed of the rendezvous while some participant's host runs such work; the slowest of several
  /// counts.
  std::array<std::int64_t, kWorks> communication = {kFullSpeed, kFullSpeed};
  /// Speed of such work on a participant while the rendezvous is under way.
  std::array<std::int64_t, kWorks> compute = {kFullSpeed, kFullSpeed};
  Picoseconds latency;  ///< the part of its duration that takes nothing from the links
  /// Which ends of the node's link this participant's data passes, if it leaves the node.
  bool sends = false, receives = false;
  bool operator==(const Beside&) const = default;
};

/// Execution::streams: the links of its rank that a communication shares with others (a bit each),
/// and the first part of its duration, which takes nothing from them. Of ranks that meet the
/// longest counts.
struct LinkUse {
  std::uint32_t links = 0;
  Picoseconds latency;
  bool operator==(const LinkUse&) const = default;
};
inline constexpr std::uint32_t kMostLinks = 12;  ///< of a rank: of each level, out and in

/// Something a rank's host issues. Items of a rank are issued in order.
struct Item {
  std::uint32_t stream = 0;
  Picoseconds dispatch;  ///< host time to issue it, > 0
  Picoseconds duration;  ///< of a rendezvous: from the last arrival to completion
  /// Items with the same id on different ranks meet; absent: runs alone. A rank issues an id once.
  /// Where ranks give different durations for one rendezvous, the largest counts.
  std::optional<std::uint64_t> rendezvous;
  std::vector<std::uint32_t> waits;  ///< earlier items of the same rank that must have finished
  Work work = Work::memory;          ///< of a local item (Execution::processes)
  std::uint32_t beside = 0;          ///< of a rendezvous (Execution::processes): which Beside
  /// Execution::streams: earlier items of the same rank that must have ended before the host turns
  /// to this one, and how much longer it takes to go on.
  std::vector<std::uint32_t> host_waits = {};
  Picoseconds host_wait = {};
  LinkUse link_use = {};
};

/// The cost of waiting for a host that sleeps (not Execution::streams).
struct Waking {
  Picoseconds delay;  ///< from the end of what it waited for until it goes on
  Picoseconds after;  ///< waits that are shorter cost nothing
};

/// The device's rule for who does the work.
enum class Execution : std::uint8_t {
  /// Streams run by themselves; the host only issues (GPUs). An item is ready when it was issued,
  /// its predecessor on the stream ended and its waits ended. Communications that pass the same
  /// link of some rank at the same time share it (shared_links.h).
  streams,
  /// The host runs every item itself, in issue order, before it issues the next: it blocks until
  /// the waits ended (and a while longer, see Waking), spends the dispatch time, then runs a local
  /// item. A rendezvous is posted; it arrives when the rank's previous rendezvous on that stream
  /// ended, and runs on the core of the last arriver: the host that posted last, or that ran what a
  /// posted one was held by. Of several that arrive at the same instant, each is charged (which
  /// keeps folded and unfolded simulations equal).
  host,
  /// The host runs local items itself, as above, and beside it a rendezvous goes on: it begins when
  /// all have arrived, as above, and takes its duration at full speed. Both slow each other as
  /// Beside says; a host that waits slows nothing. Of the rendezvous of one rank that are under way
  /// at once, those that send (or receive) over its node's link share it evenly.
  processes,
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

/// One run. starts[r]: when rank r's host begins; empty: all at 0. Every rank that issues
/// rendezvous id is a participant of it; one that never completes breaks an invariant.
EngineResult run_engine(std::span<const std::vector<Item>> ranks, Execution execution,
                        std::span<const Picoseconds> starts = {}, const Waking& waking = {},
                        std::span<const Beside> besides = {});

}  // namespace plimsoll
