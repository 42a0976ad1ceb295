// Which NCCL communicators a job needs, in one order on all ranks.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// Every group and stream that some Program communicates over.
std::set<std::pair<Group, Stream>> groups_of(std::span<const Program> programs);

/// Ranks of `rank`'s part of a group, ascending; empty where it is in none.
std::vector<std::int64_t> part_of(const Grid& grid, const Group& group, std::int64_t rank);

/// Transfers from a stage to the one that is `offset` stages further.
struct Link {
  std::int64_t stage = 0, offset = 0;
  auto operator<=>(const Link&) const = default;
};
/// Every link that some Program sends or receives over.
std::set<Link> links_of(std::span<const Program> programs);

/// Sender and receiver of `rank`'s transfers over a link; empty where it is neither.
std::vector<std::int64_t> ends_of(const Grid& grid, const Link& link, std::int64_t rank);

}  // namespace plimsoll
