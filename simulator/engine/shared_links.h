// Communications that pass the same links at the same time share them max-min fairly: all speeds
// grow alike until a link is full; those of its communications stay, the others grow on
// (progressive filling; Bertsekas and Gallager, Data Networks, 1992, section 6.5.2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "simulator/engine/engine.h"

namespace plimsoll {

/// The communications of one run that may meet on a link, in the order of time. Speeds are whole
/// parts of kFullSpeed and amounts picoseconds times that, so that nothing depends on the order in
/// which communications of equal times are named: exact and deterministic.
class SharedLinks {
 public:
  explicit SharedLinks(std::size_t links) : links_(links) {}

  /// From `time` on the communication passes `links` (outliving this), which takes `work` at full
  /// speed. From the end that next() returned last on where `time` is before that: a call of
  /// several streams is worked through at once, after all that any of them waits for, so what the
  /// others begin in it becomes known late.
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
    std::int64_t speed = 0;  ///< 0: not under way
    std::int64_t next_speed = 0;
    Picoseconds since;          ///< `left` is as of then
    std::uint32_t version = 0;  ///< of what is on the heap: only its last event counts
    std::uint32_t communication = 0;
    std::span<const std::uint32_t> links;
    bool seen = false;
  };
  struct Event {  // a flow begins or, if it is under way, ends
    Picoseconds time;
    std::uint32_t flow, version;
  };
  struct Link {
    std::vector<std::uint32_t> flows;  ///< under way
    /// The speed of the flows that it holds back; kFullSpeed if it holds back none.
    std::int64_t level = kFullSpeed;
    std::int64_t room = 0, unshared = 0;  ///< of share_all(): what is left, for how many flows
    bool changed = false, seen = false;
  };

  void push(std::uint32_t flow, Picoseconds time);
  void enter(std::uint32_t flow);
  void leave(std::uint32_t flow);
  void set_speed(std::uint32_t flow, std::int64_t speed);
  void share();
  std::int64_t level_of(const Link& link) const;
  std::int64_t slowest_level(const Flow& flow) const;
  bool is_shared(const Link& link) const;
  void share_all();
  void find_component();

  Picoseconds now_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_;  ///< of flows_
  std::vector<Link> links_;
  std::vector<Event> heap_;
  // At this instant, still to be shared: what began, and the links of what began or ended.
  std::vector<std::uint32_t> begun_, changed_;
  // Used by share_all(): links and flows that depend on the links that changed.
  std::vector<std::uint32_t> component_links_, component_flows_, full_;
};

}  // namespace plimsoll
