// Unrolls a Program: routines are looked at once, calls become items.
#include "simulator/expand.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

Link link_of(const Op& op) {
  Link link;
  if (const auto* transfer = std::get_if<TransferParams>(&op.params)) {
    link.stage_offset = transfer->stage_offset;
    link.sends = op.kind == OpKind::send;
  } else {
    link.group = std::get<CollectiveParams>(op.params).group;
  }
  return link;
}

/// What is known of a routine once, for all its calls.
struct RoutineFacts {
  std::vector<std::uint32_t> link_op;    // by op; the number of all link ops for a local op
  std::vector<std::uint32_t> first_ops;  // first op of each stream: they carry the call's waits
  /// Ops whose end is the end of the call: the last of each stream; where the host executes, all
  /// communications (the host is past the rest, and its streams order nothing).
  std::vector<std::uint32_t> last_ops;
  std::vector<Picoseconds> durations;  // of local ops
};

RoutineFacts facts_of(const Routine& routine, RoutineId id, const CostModel& costs,
                      Expansion& into) {
  RoutineFacts facts;
  std::vector<Estimate>& estimates = into.local[id.index()];
  estimates.resize(routine.ops.size());
  std::array<std::optional<std::uint32_t>, kStreams> last;
  for (std::uint32_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    auto& last_of_stream = last[std::size_t(op.stream)];
    if (!last_of_stream) facts.first_ops.push_back(i);
    last_of_stream = i;
    if (communicates(op.kind)) {
      const Link link = link_of(op);
      const auto at = std::find(into.links.begin(), into.links.end(), link);
      const auto index = std::uint32_t(at - into.links.begin());
      if (at == into.links.end()) into.links.push_back(link);
      facts.link_op.push_back(std::uint32_t(into.link_ops.size()));
      const auto position = std::count_if(into.link_ops.begin(), into.link_ops.end(),
                                          [&](const LinkOp& other) { return other.link == index; });
      into.link_ops.push_back({id, i, index, std::uint32_t(position)});
      facts.durations.emplace_back();
      if (costs.host_executes()) facts.last_ops.push_back(i);
    } else {
      estimates[i] = costs.local(op, routine.tensors);
      facts.link_op.push_back(~std::uint32_t{0});
      facts.durations.push_back(to_picoseconds(estimates[i].time));
    }
  }
  if (!costs.host_executes()) {
    for (const auto& op : last) {
      if (op) facts.last_ops.push_back(*op);
    }
  }
  return facts;
}

}  // namespace

Expansion expand(const Program& program, const CostModel& costs) {
  Expansion result;
  result.program = &program;
  std::vector<bool> called(program.routines.size());
  for (const Call& call : program.calls) called[call.routine.index()] = true;
  std::vector<RoutineFacts> facts(program.routines.size());
  result.local.resize(program.routines.size());
  for (std::size_t i = 0; i < program.routines.size(); ++i) {
    if (called[i]) facts[i] = facts_of(program.routines[i], RoutineId(i), costs, result);
  }
  const Picoseconds dispatch_op = costs.dispatch_op(), dispatch_call = costs.dispatch_call();
  for (std::uint32_t c = 0; c < program.calls.size(); ++c) {
    const Call& call = program.calls[c];
    const Routine& routine = program.at(call.routine);
    const RoutineFacts& known = facts[call.routine.index()];
    const auto base = std::uint32_t(result.items.size());
    result.first_item.push_back(base);
    for (std::uint32_t i = 0; i < routine.ops.size(); ++i) {
      const Op& op = routine.ops[i];
      Item item;
      item.stream = std::uint32_t(op.stream);
      item.dispatch = i == 0 ? dispatch_op + dispatch_call : dispatch_op;
      item.duration = known.durations[i];
      item.waits.reserve(op.waits.size());
      for (std::uint32_t wait : op.waits) item.waits.push_back(base + wait);
      result.items.push_back(std::move(item));
      result.origins.push_back(
          {c, i, std::min(known.link_op[i], std::uint32_t(result.link_ops.size()))});
    }
    for (const Wait& wait : call.waits) {
      INVARIANT(wait.call < c, "a call waits for a later one");
      const RoutineId awaited = program.calls[wait.call].routine;
      for (std::uint32_t first : known.first_ops) {
        std::vector<std::uint32_t>& waits = result.items[base + first].waits;
        const std::uint32_t from = result.first_item[wait.call];
        if (wait.port) {
          waits.push_back(from + program.at(awaited).ports.at(*wait.port).op);
        } else {
          for (std::uint32_t last : facts[awaited.index()].last_ops) waits.push_back(from + last);
        }
      }
    }
  }
  return result;
}

}  // namespace plimsoll
