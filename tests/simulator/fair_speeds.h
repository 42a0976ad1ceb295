// Max-min fair speeds by their definition, to which simulator/engine/shared_links.h is compared:
// all grow alike until a link is full.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll {

/// A communication that passes some links.
struct LinkFlow {
  std::vector<std::uint32_t> links;
  bool under_way = false;
};
/// Returns the speeds of those that are under way, in parts of kFullSpeed. There are `links` links.
std::vector<std::int64_t> fair_speeds(const std::vector<LinkFlow>& flows, std::size_t links);

}  // namespace plimsoll
