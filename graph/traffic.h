// Traffic is the bytes that a rank sends, by kind of communication and group.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "graph/program.h"

namespace plimsoll {

/// Communications of one kind over one group. Sends count under pp, and receives send nothing.
struct Traffic {
  OpKind kind = OpKind::send;
  Group group;
  std::int64_t count = 0;
  Bytes sent;
  bool operator==(const Traffic&) const = default;
};

/// Returns the bytes that member `index` of `ranks` sends of a whole of `elements`. Collectives
/// count as the ring and chain algorithms whose bytes the literature states (Patarasuk and Yuan
/// 2009). In all_gather and reduce_scatter a rank sends every element but its own part; in
/// all_reduce it does so twice. In a chain to or from a root every rank but the last sends the
/// whole. Over a group the bytes sum to the least that any algorithm moves without a switch that
/// reduces. `kind` is not recv.
Bytes sent_bytes(OpKind kind, std::int64_t elements, Bytes element, std::int64_t ranks,
                 std::int64_t index, std::int64_t root = 0);

/// Returns the traffic of one execution of a communication by a rank.
Traffic traffic_of(const Grid& grid, std::int64_t rank, const Op& op, std::int64_t elements,
                   Bytes element);
/// Adds one entry. Entries are ordered by kind and group, and receives are left out.
void add(std::vector<Traffic>& traffic, const Traffic& one);

/// Returns the traffic of one step of a rank that runs the Program.
std::vector<Traffic> step_traffic(const Program& program, std::int64_t rank);

}  // namespace plimsoll
