// Rank routines: the routines of a Program as one simulated rank runs them, some of them composed
// into maps of whole calls (routine_map.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "simulator/engine/routine_map.h"
#include "simulator/ranks/rank_choice.h"

namespace plimsoll {

/// The ports of one call that other calls wait for. Each awaited port is an event of the call, and
/// these events follow the event of the call's end.
class AwaitedPorts {
 public:
  void add(std::size_t port) { bits_ |= std::uint64_t{1} << std::min(port, kLast); }
  bool has(std::size_t port) const { return bits_ >> std::min(port, kLast) & 1; }
  /// Returns which event of the call an awaited port is.
  std::uint32_t event(std::size_t port) const {
    const std::size_t shown = std::min(port, kLast);
    const std::uint64_t before = bits_ & ((std::uint64_t{1} << shown) - 1);
    return 1 + std::uint32_t(std::popcount(before)) + std::uint32_t(port - shown);
  }
  bool operator==(const AwaitedPorts&) const = default;

 private:
  static constexpr std::size_t kLast = 63;  ///< from this port on, all are awaited or none
  std::uint64_t bits_ = 0;
};

struct RankRoutine {
  std::vector<Picoseconds> durations;  ///< by op
  /// The ops as a map; absent where the engine gets them one by one.
  std::optional<Composition> composition;
  /// The maps of its calls, by the ports of them that are awaited.
  std::vector<std::pair<AwaitedPorts, const RoutineMap*>> maps;
  std::vector<std::uint32_t> op_event;  ///< by op: its event, counted from the call's first one
  LinkUse link_use;                     ///< of a call that is one communication
  OverlapCurves::Slowdowns slowdowns;   ///< of a call that is one communication
  Picoseconds computes;                 ///< the time of its ops on the compute stream
};

/// Whether an op of a routine meets ranks of other classes.
bool meets_others(const RoutineFacts& facts, const Expansion& expansion,
                  const NumberedChannels& channels, std::size_t op);

/// Returns the links that a rank's communications share, by op of Expansion::channel_ops. Only a
/// call that is one communication shares links, and only those that several streams of the rank
/// pass. Collectives inside blocks, and others on their streams, go at full speed: the compute
/// stream waits for them.
std::vector<LinkUse> shared_link_uses(const Expansion& expansion, const RankTopology& topology,
                                      std::int64_t rank);

/// Returns the routines of a rank, none of them composed.
std::vector<RankRoutine> rank_routines(const Expansion& expansion, const RankTopology& topology,
                                       std::int64_t rank);

/// Composes each routine whose streams meet no other ranks. Streams of one composed routine get one
/// queue (StreamEngine::add_rank).
void compose_routines(const Expansion& expansion, const NumberedChannels& channels,
                      std::vector<RankRoutine>& routines,
                      std::vector<std::uint32_t>& queue_of_stream);

/// Returns the map of a composed routine for a call with these awaited ports. A new map is added to
/// `maps`, whose elements must not move.
const RoutineMap& map_for(const Routine& routine, const AwaitedPorts& awaited,
                          RankRoutine& rank_routine, std::deque<RoutineMap>& maps);

}  // namespace plimsoll
