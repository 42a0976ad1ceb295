// Expansion: facts that all ranks of a Program's class share. They are the costs of its routines,
// the groups that they communicate with, and its calls unrolled into engine items.
#pragma once

#include <span>
#include <vector>

#include "graph/program.h"
#include "simulator/costs/cost_model.h"
#include "simulator/engine/engine.h"

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

/// Facts of a routine that hold for all its calls; empty if it has none.
struct RoutineFacts {
  static constexpr std::uint32_t kLocal = ~std::uint32_t{0};
  std::vector<Estimate> local;         ///< by op; of local ops
  std::vector<Picoseconds> durations;  ///< the same
  std::vector<std::uint32_t> link_op;  ///< by op: index into link_ops, or kLocal
  /// First op of each stream: they carry the call's waits.
  std::vector<std::uint32_t> first_ops;
  /// Ops whose end is the end of the call: the last of each stream; where the host executes, all
  /// communications (the host is past the rest, and its streams order nothing).
  std::vector<std::uint32_t> last_ops;
  std::vector<Picoseconds> dispatch;  ///< by op: host time to issue it
  /// By op: the host waits for its end before it issues more (Framework).
  std::vector<bool> host_waits;
};

/// A Program on devices of one kind.
struct Expansion {
  const Program* program = nullptr;
  std::vector<RoutineFacts> routines;  ///< parallel to the Program's
  std::vector<std::int64_t> calls;     ///< of each routine
  std::vector<Link> links;
  std::vector<LinkOp> link_ops;
  Picoseconds dispatch_call, host_wait;
  TransfersHold transfers_hold = TransfersHold::nothing;
  bool host_reads_batch = false;
  bool chunks = false;  ///< stages hold several parts of the model each

  /// Host time to issue an op of a call.
  Picoseconds dispatch(const RoutineFacts& facts, std::size_t op) const;
};

/// By Program, for every kind of device of the cluster: those on kind k begin at k times the number
/// of Programs, and are empty where no rank has such a device. Costs of equal routines are asked
/// for once.
std::vector<Expansion> expand(std::span<const Program> programs, const CostModel& costs);

/// Ops of the calls in issue order, without rendezvous ids and without durations of
/// communications; waits on ops, ports and calls become waits on items.
std::vector<Item> unroll(const Expansion& expansion);

}  // namespace plimsoll
