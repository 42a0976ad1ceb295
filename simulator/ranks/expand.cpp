// Looks at each routine once, and unrolls calls into ops.
#include "simulator/ranks/expand.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "graph/op_table.h"
#include "simulator/costs/host_dispatch.h"
#include "simulator/ranks/framework_waits.h"

namespace plimsoll {
namespace {

ClassChannel channel_of(const Op& op) {
  ClassChannel channel;
  if (const auto* transfer = std::get_if<TransferParams>(&op.params)) {
    channel.stage_offset = transfer->stage_offset;
    channel.sends = op.kind == OpKind::send;
  } else {
    channel.group = std::get<CollectiveParams>(op.params).group;
  }
  return channel;
}

/// Computes the costs of local ops. Stages call the same blocks, so each block is computed once.
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

std::uint32_t add_channel_op(const Op& op, RoutineId routine, std::uint32_t index,
                             Expansion& into) {
  const ClassChannel channel = channel_of(op);
  const auto at = std::find(into.channels.begin(), into.channels.end(), channel);
  const auto number = std::uint32_t(at - into.channels.begin());
  if (at == into.channels.end()) into.channels.push_back(channel);
  const auto position =
      std::count_if(into.channel_ops.begin(), into.channel_ops.end(),
                    [&](const ChannelOp& other) { return other.channel == number; });
  into.channel_ops.push_back({routine, index, number, std::uint32_t(position)});
  return std::uint32_t(into.channel_ops.size() - 1);
}

/// Whether an op of the routine that places choices writes `counts`, and ranks that exchange rows
/// gather it.
bool is_placed_and_gathered(const Routine& routine, TensorId counts) {
  const auto has = [&](OpKind kind, const auto& tensors) {
    return std::any_of(routine.ops.begin(), routine.ops.end(), [&](const Op& op) {
      return op.kind == kind && std::ranges::find(op.*tensors, counts) != (op.*tensors).end();
    });
  };
  return has(OpKind::place_choices, &Op::outputs) && has(OpKind::all_gather, &Op::inputs);
}

/// Whether the host waits for this op because its result is the number of rows that each expert
/// gets. The graph of a whole step contains no wait.
bool host_waits_for_counts(const Routine& routine, const Op& op, const Framework& framework) {
  if (framework.host.dispatch.graphs == Graphs::step) return false;
  const bool exchange = framework.host.waits.before_exchange,
             products = framework.host.waits.before_products;
  switch (op.kind) {
    case OpKind::all_gather:
      return exchange && is_placed_and_gathered(routine, op.inputs[0]);
    case OpKind::received_ends:  // of one part, they follow from those of the exchange
      return products && !exchange && std::get<PlaceParams>(op.params).parts > 1;
    case OpKind::place_choices:
      return products && !is_placed_and_gathered(routine, op.outputs[1]);
    default:
      return false;
  }
}

bool host_waits_for(const Routine& routine, const Op& op, const Framework& framework) {
  if (framework.host.waits.for_launches) return op.kind != OpKind::send && op.kind != OpKind::recv;
  if (op.kind == OpKind::clip_factor || op.kind == OpKind::update_loss_scale) {
    return framework.host.waits.for_norm;
  }
  return (framework.host.waits.for_gathers && gathers_parameters(op)) ||
         host_waits_for_counts(routine, op, framework);
}

/// Returns what transfers hold. Stages of several chunks can receive ahead, and then they hold
/// nothing.
TransfersHold transfers_hold(const Framework& framework, bool chunks) {
  if (framework.host.waits.for_launches) return TransfersHold::host;
  if (chunks && framework.parallelism.overlap.receives_ahead) return TransfersHold::nothing;
  return framework.host.waits.transfers_hold;
}

/// Whether the first stage receives activations: only where stages hold several parts.
bool goes_round(const Program& program) {
  if (program.stage > 0) return false;
  return std::any_of(program.calls.begin(), program.calls.end(), [&](const Call& call) {
    const Routine& routine = program.at(call.routine);
    return !routine.ops.empty() && routine.ops[0].kind == OpKind::recv &&
           routine.phase == Phase::forward;
  });
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
    facts.channel_op.push_back(communication ? add_channel_op(op, id, i, into)
                                             : RoutineFacts::kLocal);
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

void add_other_ops(const Routine& routine, Picoseconds time, RoutineFacts& facts) {
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    if (is_kernel(routine, routine.ops[i])) facts.durations[i] += time;
  }
}

}  // namespace

std::vector<bool> host_waits(const Routine& routine, const CostModel& costs) {
  std::vector<bool> waits;
  for (const Op& op : routine.ops) {
    waits.push_back(!costs.host_executes() && host_waits_for(routine, op, costs.framework()));
  }
  return waits;
}

std::vector<Expansion> expand(std::span<const Program> programs, const CostModel& costs) {
  const auto devices = devices_by_kind(costs.cluster(), programs[0].grid.world_size());
  const bool host_executes = costs.host_executes();
  const bool chunks = std::any_of(programs.begin(), programs.end(), goes_round);
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
      result.dispatch_call = costs.dispatch_call();
      result.host_wait = to_picoseconds(costs.on_host(costs.framework().host.waits.time));
      if (!host_executes) {
        result.transfers_hold = transfers_hold(costs.framework(), chunks);
        result.host_reads_batch = costs.framework().host.waits.for_batch;
      }
      result.chunks = chunks;
      result.calls.resize(program.routines.size());
      for (const Call& call : program.calls) ++result.calls[call.routine.index()];
      result.routines.resize(program.routines.size());
      for (std::size_t i = 0; i < program.routines.size(); ++i) {
        if (result.calls[i] == 0) continue;
        result.routines[i] =
            facts_of(program.routines[i], RoutineId(i), host_executes, local_costs, result);
        result.routines[i].dispatch = host_dispatch(program, program.routines[i], costs);
        add_other_ops(program.routines[i], costs.other_ops(kind), result.routines[i]);
        result.routines[i].host_waits = host_waits(program.routines[i], costs);
      }
    }
  }
  return expansions;
}

Picoseconds Expansion::dispatch(const RoutineFacts& facts, std::size_t op) const {
  return op == 0 ? facts.dispatch[op] + dispatch_call : facts.dispatch[op];
}

std::vector<TimedOp> unroll(const Expansion& expansion) {
  const Program& program = *expansion.program;
  FrameworkWaits framework(expansion);
  std::vector<TimedOp> timed_ops;
  std::vector<std::uint32_t> first_op;  // of each call
  for (std::uint32_t c = 0; c < program.calls.size(); ++c) {
    const Call& call = program.calls[c];
    const Routine& routine = program.at(call.routine);
    const RoutineFacts& known = expansion.routines[call.routine.index()];
    const auto base = std::uint32_t(timed_ops.size());
    first_op.push_back(base);
    const std::vector<std::uint32_t> transfers = framework.before_call(c);
    for (std::uint32_t i = 0; i < routine.ops.size(); ++i) {
      const Op& op = routine.ops[i];
      TimedOp timed;
      timed.stream = std::uint32_t(op.stream);
      timed.dispatch = expansion.dispatch(known, i);
      timed.duration = known.durations[i];
      timed.waits.reserve(op.waits.size());
      for (std::uint32_t wait : op.waits) timed.waits.push_back(base + wait);
      timed.host_waits = framework.before_op(op);
      timed.host_wait = expansion.host_wait;
      framework.issued(op, known.host_waits[i], base + i);
      timed_ops.push_back(std::move(timed));
    }
    for (std::uint32_t first : known.first_ops) {
      std::vector<std::uint32_t>& waits = timed_ops[base + first].waits;
      waits.insert(waits.end(), transfers.begin(), transfers.end());
    }
    for (const Wait& wait : call.waits) {
      INVARIANT(wait.call < c, "a call waits for a later one");
      const RoutineId awaited = program.calls[wait.call].routine;
      for (std::uint32_t first : known.first_ops) {
        std::vector<std::uint32_t>& waits = timed_ops[base + first].waits;
        const std::uint32_t from = first_op[wait.call];
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
  return timed_ops;
}

}  // namespace plimsoll
