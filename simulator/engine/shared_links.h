// Shared links: communications that pass the same links at the same time share them max-min fairly.
// All speeds grow alike until a link is full. The communications on that link keep their speed, and
// the others grow on (progressive filling; Bertsekas and Gallager, Data Networks, 1992, section
// 6.5.2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "simulator/engine/engine.h"

namespace plimsoll {

/// The communications of one run that may share a link, in the order of time. A speed is a whole
/// number of parts of kFullSpeed, and an amount is picoseconds times kFullSpeed. So results are
/// exact, and do not depend on the order in which communications of equal times are named.
class SharedLinks {
 public:
  explicit SharedLinks(std::size_t links) : links_(links) {}

  /// Makes a communication pass `links` from `time` on, which takes `work` at full speed. It begins
  /// no earlier than the end that next() returned last. (A call of several streams is worked
  /// through at once, when all its waits have ended. A communication of one of its streams may
  /// become known only then.) `links` must outlive this object.
  void begin(std::uint32_t communication, Picoseconds time, Picoseconds work,
             std::span<const std::uint32_t> links);

  struct End {
    std::uint32_t communication = 0;
    Picoseconds time;
  };
  /// Returns the communication that ends first, and forgets it; nothing where none is under way.
  /// Every communication that can begin before that end must be known.
  std::optional<End> next();

 private:
  __extension__ using Amount = __int128;  // picoseconds times kFullSpeed: beyond 64 bits
  struct Flow {
    Amount left = 0;
    std::int64_t speed = 0;  ///< 0: it has not begun
    std::int64_t next_speed = 0;
    Picoseconds since;          ///< `left` is as of then
    std::uint32_t version = 0;  ///< of its events on the heap only the last one counts
    std::uint32_t communication = 0;
    std::span<const std::uint32_t> links;
    bool seen = false;
  };
  /// The begin of a flow or, if the flow is under way, its end.
  struct Event {
    Picoseconds time;
    std::uint32_t flow, version;
  };
  struct Link {
    std::vector<std::uint32_t> flows;     ///< under way
    std::int64_t room = 0, unshared = 0;  ///< in share(): speed left, and flows without one
    bool changed = false, seen = false;
  };

  void push(std::uint32_t flow, Picoseconds time);
  void enter(std::uint32_t flow);
  void leave(std::uint32_t flow);
  void set_speed(std::uint32_t flow, std::int64_t speed);
  void share();
  void mark_changed(std::uint32_t link);
  void find_component();

  Picoseconds now_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_;  ///< of flows_
  std::vector<Link> links_;
  std::vector<Event> heap_;
  std::vector<std::uint32_t> changed_;  ///< links on which flows began or ended, not shared yet
  // Used by share(): the links and flows that depend on the links that changed.
  std::vector<std::uint32_t> component_links_, component_flows_, full_;
};

}  // namespace plimsoll
