// All ranks make the communicators of the groups and transfers of a job in one order.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// Returns every group and stream that some Program communicates over.
std::set<std::pair<Group, Stream>> groups_of(std::span<const Program> programs);

/// Returns the ranks of `rank`'s instance of a group, ascending; empty where it is in none.
std::vector<std::int64_t> part_of(const Grid& grid, const Group& group, std::int64_t rank);

/// The transfers from a stage to the stage that is `offset` further. Where `offset` is 0 they go to
/// the partners, from the first half of the data ranks or from the second (pipeline_peer).
struct TransferChannel {
  std::int64_t stage = 0, offset = 0;
  bool from_second_half = false;
  auto operator<=>(const TransferChannel&) const = default;
};
/// Returns every channel that some Program sends or receives over.
std::set<TransferChannel> transfer_channels(std::span<const Program> programs);

/// Returns the channel over which a rank sends so many stages further.
TransferChannel channel_from(const Grid& grid, std::int64_t sender, std::int64_t offset);

/// Returns sender and receiver of `rank`'s transfers over a channel; empty where it is neither.
std::vector<std::int64_t> ends_of(const Grid& grid, const TransferChannel& channel,
                                  std::int64_t rank);

}  // namespace plimsoll
