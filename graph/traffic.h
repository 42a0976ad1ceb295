// Traffic: bytes that a rank sends, by kind of communication and group.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "graph/program.h"

namespace plimsoll {

/// Communications of one kind over one group. Sends are counted under pp; receives send nothing.
struct Traffic {
  OpKind kind = OpKind::send;
  Group group;
  std::int64_t count = 0;
  Bytes sent;
  bool operator==(const Traffic&) const = default;
};

/// The bytes that member `index` of `ranks` sends of a whole of `elements`, in the ring and chain
/// algorithms whose bytes the literature states: every element but one's own part per round of
/// all_gather and reduce_scatter, both rounds for all_reduce (Patarasuk and Yuan 2009); all of it
/// from each but the last in the chain to or from a root. Over a group they sum to what any
/// algorithm without a switch that reduces must move. `kind` is not recv.
Bytes sent_bytes(OpKind kind, std::int64_t elements, Bytes element, std::int64_t ranks,
                 std::int64_t index, std::int64_t root = 0);

/// One execution of a communication by a rank.
Traffic traffic_of(const Grid& grid, std::int64_t rank, const Op& op, std::int64_t elements,
                   Bytes element);
/// Adds it; entries are ordered by kind and group, and receives are left out.
void add(std::vector<Traffic>& traffic, const Traffic& one);

/// One step of a rank that runs the Program.
std::vector<Traffic> step_traffic(const Program& program, std::int64_t rank);

}  // namespace plimsoll
