// A Program unrolled into engine items: everything that is the same for all ranks of its class.
#pragma once

#include <vector>

#include "graph/program.h"
#include "simulator/cost_model.h"
#include "simulator/engine.h"

namespace plimsoll {

/// With whom a rank communicates: a group, or the peer of a send or receive.
struct Link {
  std::optional<Group> group;
  std::int64_t stage_offset = 0;  ///< without group: where the peer is
  bool sends = false;             ///< without group: to the peer, else from it
  auto operator<=>(const Link&) const = default;
};

/// One communication op of one routine; each call of the routine issues it.
struct LinkOp {
  RoutineId routine;
  std::uint32_t op = 0;
  std::uint32_t link = 0;      ///< index into Expansion::links
  std::uint32_t position = 0;  ///< among the ops of this link
};

struct Expansion {
  const Program* program = nullptr;
  /// Without rendezvous ids and without durations of communications.
  std::vector<Item> items;
  struct Origin {
    std::uint32_t call = 0, op = 0;
    std::uint32_t link_op = 0;  ///< index into link_ops, or link_ops.size() for local ops
  };
  std::vector<Origin> origins;            ///< parallel to items
  std::vector<std::uint32_t> first_item;  ///< of each call
  std::vector<Link> links;
  std::vector<LinkOp> link_ops;
  std::vector<std::vector<Estimate>> local;  ///< [routine][op], of local ops
};

/// Ops of the calls in issue order; waits on ops, ports and calls become waits on items.
Expansion expand(const Program& program, const CostModel& costs);

}  // namespace plimsoll
