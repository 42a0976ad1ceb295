// Handicaps: what the unusual choices of strategies count in a search.
#pragma once

#include <array>
#include <vector>

#include "planner/explore/runners_up.h"
#include "planner/explore/search_request.h"

namespace plimsoll {

/// Says which unusual choices count in a search. A choice that the user made does not count, and no
/// choice counts where the fastest plan is asked for.
class Handicaps {
 public:
  explicit Handicaps(const SearchRequest& request);

  /// Returns the choices of a strategy that count, with tight memory if `peak` live bytes, a lower
  /// bound, are enough for that.
  std::vector<Unusual> of(const Strategy& strategy, Bytes peak) const;
  /// Sets the choices that count against a candidate. Its memory is the bytes that are alive until
  /// an allocator was replayed.
  void weigh(Candidate& candidate) const;

 private:
  const Target& target_;
  const Bytes capacity_;
  const UsualDevices devices_;
  std::array<bool, kUnusualChoices> counts_ = {};
};

}  // namespace plimsoll
