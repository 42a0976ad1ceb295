// Routines are looked at once; calls become items.
#include "simulator/expand.h"

#include <algorithm>
#include <array>
#include <map>

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

/// Stages call the same blocks: what their ops cost is computed once.
class LocalCosts {
 public:
  LocalCosts(const CostModel& costs, std::size_t kind) : costs_(costs), kind_(kind) {}

  std::vector<Estimate> of(const Routine& routine) {
    auto& known = known_[routine.name];
    for (const auto& [same, estimates] : known) {
      if (*same == routine) return estimates;
    }
    std::vector<Estimate> estimates(routine.ops.size());
    for (std::size_t i = 0; i < routine.ops.size(); ++i) {
      if (communicates(routine.ops[i].kind)) continue;
      estimates[i] = costs_.local(routine.ops[i], routine.tensors, kind_);
    }
    known.emplace_back(&routine, estimates);
    return estimates;
  }

 private:
  const CostModel& costs_;
  std::size_t kind_;
  std::map<std::string, std::vector<std::pair<const Routine*, std::vector<Estimate>>>> known_;
};

std::uint32_t add_link_op(const Op& op, RoutineId routine, std::uint32_t index, Expansion& into) {
  const Link link = link_of(op);
  const auto at = std::find(into.links.begin(), into.links.end(), link);
  const auto number = std::uint32_t(at - into.links.begin());
  if (at == into.links.end()) into.links.push_back(link);
  const auto position = std::count_if(into.link_ops.begin(), into.link_ops.end(),
                                      [&](const LinkOp& other) { return other.link == number; });
  into.link_ops.push_back({routine, index, number, std::uint32_t(position)});
  return std::uint32_t(into.link_ops.size() - 1);
}

RoutineFacts facts_of(const Routine& routine, RoutineId id, bool host_executes,
                      LocalCosts& local_costs, Expansion& into) {
  RoutineFacts facts;
  facts.local = local_costs.of(routine);
  std::array<std::optional<std::uint32_t>, kStreams> last;
  for (std::uint32_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    auto& last_of_stream = last[std::size_t(op.stream)];
    if (!last_of_stream) facts.first_ops.push_back(i);
    last_of_stream = i;
    const bool communication = communicates(op.kind);
    facts.link_op.push_back(communication ? add_link_op(op, id, i, into) : RoutineFacts::kLocal);
    facts.durations.push_back(communication ? Picoseconds() : to_picoseconds(facts.local[i].time));
    if (communication && host_executes) facts.last_ops.push_back(i);
  }
  if (!host_executes) {
    for (const auto& op : last) {
      if (op) facts.last_ops.push_back(*op);
    }
  }
  return facts;
}

}  // namespace

std::vector<Expansion> expand(std::span<const Program> programs, const CostModel& costs) {
  const auto devices = devices_by_kind(costs.cluster(), programs[0].grid.world_size());
  std::vector<Expansion> expansions;
  for (std::size_t kind = 0; kind < costs.device_kinds(); ++kind) {
    if (!devices.contains(kind)) {
      expansions.resize(expansions.size() + programs.size());
      continue;
    }
    LocalCosts local_costs(costs, kind);
    for (const Program& program : programs) {
      Expansion& result = expansions.emplace_back();
      result.program = &program;
      result.dispatch_op = costs.dispatch_op();
      result.dispatch_call = costs.dispatch_call();
      std::vector<bool> called(program.routines.size());
      for (const Call& call : program.calls) called[call.routine.index()] = true;
      result.routines.resize(program.routines.size());
      for (std::size_t i = 0; i < program.routines.size(); ++i) {
        if (!called[i]) continue;
        result.routines[i] =
            facts_of(program.routines[i], RoutineId(i), costs.host_executes(), local_costs, result);
      }
    }
  }
  return expansions;
}

std::vector<Item> unroll(const Expansion& expansion) {
  const Program& program = *expansion.program;
  std::vector<Item> items;
  std::vector<std::uint32_t> first_item;  // of each call
  for (std::uint32_t c = 0; c < program.calls.size(); ++c) {
    const Call& call = program.calls[c];
    const Routine& routine = program.at(call.routine);
    const RoutineFacts& known = expansion.routines[call.routine.index()];
    const auto base = std::uint32_t(items.size());
    first_item.push_back(base);
    for (std::uint32_t i = 0; i < routine.ops.size(); ++i) {
      const Op& op = routine.ops[i];
      Item item;
      item.stream = std::uint32_t(op.stream);
      item.dispatch = expansion.dispatch_op;
      if (i == 0) item.dispatch += expansion.dispatch_call;
      item.duration = known.durations[i];
      item.waits.reserve(op.waits.size());
      for (std::uint32_t wait : op.waits) item.waits.push_back(base + wait);
      items.push_back(std::move(item));
    }
    for (const Wait& wait : call.waits) {
      INVARIANT(wait.call < c, "a call waits for a later one");
      const RoutineId awaited = program.calls[wait.call].routine;
      for (std::uint32_t first : known.first_ops) {
        std::vector<std::uint32_t>& waits = items[base + first].waits;
        const std::uint32_t from = first_item[wait.call];
        if (wait.port) {
          waits.push_back(from + program.at(awaited).ports.at(*wait.port).op);
        } else {
          for (std::uint32_t last : expansion.routines[awaited.index()].last_ops) {
            waits.push_back(from + last);
          }
        }
      }
    }
  }
  return items;
}

}  // namespace plimsoll
