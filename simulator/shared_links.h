// Communications that pass the same links at the same time share them max-min fairly: all speeds
// grow alike until a link is full; those of its communications stay, the others grow on
// (progressive filling; Bertsekas and Gallager, Data Networks, 1992, section 6.5.2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// The communications of one run that may meet on a link, in the order of time. Speeds are whole
/// parts of kFullSpeed and amounts picoseconds times that, so that nothing depends on the order in
/// which communications of equal times are named: exact and deterministic.
class SharedLinks {
 public:
  SharedLinks(std::size_t communications, std::size_t links)
      : flows_(communications), active_(links), seen_(links), room_(links) {}

  /// From `time` on the communication passes `links` (outliving this), which takes `work` at full
  /// speed. No earlier than what next() returned last.
  void begin(std::uint32_t communication, Picoseconds time, Picoseconds work,
             std::span<const std::uint32_t> links);

  struct End {
    std::uint32_t communication = 0;
    Picoseconds time;
  };
  /// The first that ends, if all that can begin before are known; nothing: none is under way.
  std::optional<End> next();

 private:
  __extension__ using Amount = __int128;  // picoseconds times kFullSpeed: beyond 64 bits
  struct Flow {
    Amount left = 0;
    std::int64_t speed = 0, next_speed = 0;
    Picoseconds since;  ///< `left` is as of then
    std::uint32_t version = 0;
    bool seen = false;
    std::span<const std::uint32_t> links;
  };
  struct Event {
    Picoseconds time;
    bool ends;
    std::uint32_t flow, version;
    // Reversed, for a heap whose top is the earliest.
    friend bool operator<(const Event& a, const Event& b) {
      if (a.time != b.time) return a.time > b.time;
      if (a.ends != b.ends) return b.ends;
      return a.flow > b.flow;
    }
  };
  struct Room {
    std::int64_t speed = 0, flows = 0;  ///< left to share, by how many
  };

  void push(const Event& event);
  void enter(std::uint32_t flow);
  void leave(std::uint32_t flow);
  bool alone(const Flow& flow) const;
  void set_speed(std::uint32_t flow, std::int64_t speed);
  void share(std::span<const std::uint32_t> links);
  void find_component(std::span<const std::uint32_t> links);

  Picoseconds now_;
  std::vector<Flow> flows_;
  std::vector<std::vector<std::uint32_t>> active_;  ///< by link: flows
  std::vector<Event> heap_;
  // Of share(): what depends on the links whose flows changed.
  std::vector<bool> seen_;
  std::vector<Room> room_;  ///< by link
  std::vector<std::uint32_t> component_links_, component_flows_, full_;
};

}  // namespace plimsoll
