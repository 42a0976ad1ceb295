// Expansion: facts that all ranks of a Program's class share. They are the costs of its routines,
// the channels that it communicates over, and its calls unrolled into ops for an engine.
#pragma once

#include <span>
#include <vector>

#include "graph/program.h"
#include "simulator/costs/cost_model.h"
#include "simulator/engine/engine.h"

namespace plimsoll {

/// A channel as a class of ranks sees it: a group of ranks, or a peer to send to or receive from.
/// The n-th communications of its members over a channel are one rendezvous.
struct ClassChannel {
  std::optional<Group> group;
  std::int64_t stage_offset = 0;  ///< without group: stages from the rank to its peer
  bool sends = false;             ///< without group: whether the rank sends to its peer
  auto operator<=>(const ClassChannel&) const = default;
};

/// One communication op of one routine; each call of the routine issues it.
struct ChannelOp {
  RoutineId routine;
  std::uint32_t op = 0;
  std::uint32_t channel = 0;   ///< index into Expansion::channels
  std::uint32_t position = 0;  ///< among the ops of this channel
};

/// Facts that hold for all calls of a routine; empty for a routine that is never called.
struct RoutineFacts {
  static constexpr std::uint32_t kLocal = ~std::uint32_t{0};
  std::vector<Estimate> local;            ///< by op; of local ops
  std::vector<Picoseconds> durations;     ///< by op; of local ops
  std::vector<std::uint32_t> channel_op;  ///< by op: index into Expansion::channel_ops, or kLocal
  std::vector<std::uint32_t> first_ops;   ///< the first of each stream: the call's waits hold them
  /// Ops whose end is the end of the call: the last op of each stream. Where the host executes, all
  /// communications: the host is past all other ops, and its streams order nothing.
  std::vector<std::uint32_t> last_ops;
  std::vector<Picoseconds> dispatch;  ///< by op: host time to issue it
  std::vector<bool> host_waits;       ///< by op: host_waits()
};

/// A Program on devices of one kind.
struct Expansion {
  const Program* program = nullptr;
  std::vector<RoutineFacts> routines;  ///< parallel to the Program's
  std::vector<std::int64_t> calls;     ///< of each routine
  std::vector<ClassChannel> channels;
  std::vector<ChannelOp> channel_ops;
  Picoseconds dispatch_call, host_wait;
  TransfersHold transfers_hold = TransfersHold::nothing;
  bool host_reads_batch = false;
  bool chunks = false;  ///< stages hold several parts of the model each

  /// Returns the host time to issue an op of a call.
  Picoseconds dispatch(const RoutineFacts& facts, std::size_t op) const;
};

/// Expands every Program for every kind of device in the cluster. The expansions for kind k begin
/// at k times the number of Programs; they are empty where no rank has such a device. The cost of
/// equal routines is computed once.
std::vector<Expansion> expand(std::span<const Program> programs, const CostModel& costs);

/// Returns, by op, whether the framework's host waits for its end before it issues more. Hosts wait
/// for transfers by whole exchanges (framework_waits.h).
std::vector<bool> host_waits(const Routine& routine, const CostModel& costs);

/// Returns the ops of all calls in issue order. Waits on ops, ports and calls become waits on ops.
/// The numbers of rendezvous and the durations of communications are not set yet.
std::vector<TimedOp> unroll(const Expansion& expansion);

}  // namespace plimsoll
