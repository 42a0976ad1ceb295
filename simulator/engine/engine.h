// The event engines: what a rank's host issues, the three rules for who does the work, and the
// times that come out. An engine knows ops, streams, rendezvous and links. It knows no kinds of ops
// and no bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// Kinds of local ops. Each kind slows communications, and is slowed by them, in its own way.
enum class LocalWork : std::uint8_t { matmul, memory };
inline constexpr std::size_t kLocalWorks = 2;

/// A speed is a whole number of these parts of full speed, so that arithmetic stays exact.
inline constexpr std::int64_t kFullSpeed = std::int64_t{1} << 16;

/// How a rendezvous and the local ops of its ranks slow each other (Execution::processes).
struct MutualSlowdown {
  /// Speed of the rendezvous while a participant's host runs local work of this kind. Of several
  /// participants the slowest counts.
  std::array<std::int64_t, kLocalWorks> communication = {kFullSpeed, kFullSpeed};
  /// Speed of local work of this kind on a participant while the rendezvous is under way.
  std::array<std::int64_t, kLocalWorks> compute = {kFullSpeed, kFullSpeed};
  Picoseconds latency;  ///< the first part of the rendezvous's duration: it uses no link
  /// Whether this participant's data leaves its node, or comes from another node.
  bool sends = false, receives = false;
  bool operator==(const MutualSlowdown&) const = default;
};

/// The links that a communication shares with others of its rank (Execution::streams).
struct LinkUse {
  std::uint32_t links = 0;  ///< a bit for each link of the rank
  /// The first part of the communication's duration: it uses no link. Where ranks of a rendezvous
  /// differ, the longest latency counts.
  Picoseconds latency;
  bool operator==(const LinkUse&) const = default;
};
inline constexpr std::uint32_t kMostLinks = 12;  ///< of a rank: out and in, at each level

/// An op as an engine sees it: a rank's host issues its ops in order.
struct TimedOp {
  std::uint32_t stream = 0;
  Picoseconds dispatch;  ///< host time to issue it, > 0
  Picoseconds duration;  ///< of a rendezvous: from the last arrival to its end
  /// Ops of several ranks with one number meet; absent: a local op. A rank issues a number once.
  /// Where ranks give different durations for one rendezvous, the longest counts.
  std::optional<std::uint64_t> rendezvous;
  std::vector<std::uint32_t> waits;    ///< earlier ops of the same rank that must have ended
  LocalWork work = LocalWork::memory;  ///< of a local op (Execution::processes)
  std::uint32_t slowdown = 0;  ///< of a rendezvous (Execution::processes): which MutualSlowdown
  /// Earlier ops of the same rank that must have ended before the host turns to this op, and the
  /// time that the host then takes to go on (Execution::streams).
  std::vector<std::uint32_t> host_waits = {};
  Picoseconds host_wait = {};
  LinkUse link_use = {};
};

/// The cost of waiting for a host that sleeps meanwhile (not on Execution::streams).
struct WakeUpCost {
  Picoseconds delay;  ///< from the end of what the host waited for until the host goes on
  Picoseconds after;  ///< shorter waits cost nothing
};

/// A device's rule for who does the work.
enum class Execution : std::uint8_t {
  /// Streams of a GPU run by themselves, and the host only issues. An op begins when it was issued,
  /// the op before it on its stream has ended, and its waits have ended. Communications that pass
  /// the same link of a rank at the same time share that link (shared_links.h).
  streams,
  /// Ranks are threads, each on a CPU core. A host runs every op itself before it issues the next.
  /// It blocks until the op's waits have ended, spends the dispatch time, and runs a local op. A
  /// communication is only posted. It arrives when the rank's communication before it on the stream
  /// has ended, and the core of the rank that arrives last does the work of the rendezvous. If a
  /// post was delayed by an earlier communication, the core that ran that one does the work. Where
  /// several ranks arrive last at the same instant, each of them does it, so that folded and
  /// unfolded simulations stay equal.
  threads,
  /// Ranks are processes, each on a CPU core. A host runs local ops as above, and a rendezvous goes
  /// on beside them. It begins when all ranks have arrived, and takes its duration at full speed.
  /// The two slow each other as MutualSlowdown says; a host that waits slows nothing. Rendezvous of
  /// one rank that send (or receive) over its node's link at the same time share it evenly.
  processes,
};

/// When an op was posted, began and ended. A rendezvous begins when its last participant arrives.
struct OpTimes {
  Picoseconds posted, begin, end;
};

struct EngineResult {
  std::vector<std::vector<OpTimes>> times;  ///< [rank][op]
  std::vector<Picoseconds> host_end;        ///< by rank: its host has issued everything
  std::vector<Picoseconds> rank_end;        ///< by rank: its host and all its ops have ended
};

}  // namespace plimsoll
