// Decides which routines become maps, and what their calls share and wait for.
#include "simulator/ranks/rank_routines.h"

#include <array>

namespace plimsoll {
namespace {

using QueueOfStream = std::vector<std::uint32_t>;

/// Streams on which some routine has ops while it has others elsewhere. Whole calls of the routine
/// may be worked through at once, so the engine may learn late what begins on these streams.
std::array<bool, kStreams> streams_of_blocks(const Expansion& expansion) {
  std::array<bool, kStreams> result = {};
  const Program& program = *expansion.program;
  for (std::size_t r = 0; r < program.routines.size(); ++r) {
    const std::vector<Op>& ops = program.routines[r].ops;
    const bool called = !expansion.routines[r].channel_op.empty();
    const bool several = std::any_of(ops.begin(), ops.end(),
                                     [&](const Op& op) { return op.stream != ops[0].stream; });
    if (!called || !several) continue;
    for (const Op& op : ops) result[std::size_t(op.stream)] = true;
  }
  return result;
}

/// The routines, and the streams, of a rank that meet ranks of other classes.
struct Meeting {
  std::vector<bool> routines;
  std::array<bool, kStreams> streams = {};
};

Meeting find_meeting(const Expansion& expansion, const NumberedChannels& channels) {
  const Program& program = *expansion.program;
  Meeting meeting;
  meeting.routines.resize(program.routines.size());
  for (std::size_t r = 0; r < program.routines.size(); ++r) {
    const RoutineFacts& facts = expansion.routines[r];
    for (std::size_t op = 0; op < facts.channel_op.size(); ++op) {
      if (!meets_others(facts, expansion, channels, op)) continue;
      meeting.routines[r] = true;
      meeting.streams[std::size_t(program.routines[r].ops[op].stream)] = true;
    }
  }
  return meeting;
}

bool may_be_composed(const Expansion& expansion, std::size_t routine, const Meeting& meeting) {
  const std::vector<Op>& ops = expansion.program->routines[routine].ops;
  const bool called = !expansion.routines[routine].channel_op.empty();
  if (!called || meeting.routines[routine] || ops.size() < 2) return false;
  return std::none_of(ops.begin(), ops.end(),
                      [&](const Op& op) { return meeting.streams[std::size_t(op.stream)]; });
}

Composition compose_routine(const Expansion& expansion, std::size_t index,
                            const RankRoutine& rank_routine) {
  const Routine& routine = expansion.program->routines[index];
  std::vector<RoutineOp> ops;
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    ops.push_back({std::uint32_t(routine.ops[i].stream),
                   expansion.dispatch(expansion.routines[index], i), rank_routine.durations[i],
                   routine.ops[i].waits});
    // A wait for the last op comes before the next call (FrameworkWaits).
    const bool is_last = i + 1 == routine.ops.size();
    if (expansion.routines[index].host_waits[i] && !is_last)
      ops.back().host_wait = expansion.host_wait;
  }
  return Composition(ops);
}

/// Puts the streams of these ops into one queue.
void join_queues(const std::vector<Op>& ops, QueueOfStream& queue_of_stream) {
  std::uint32_t lowest = queue_of_stream[std::size_t(ops[0].stream)];
  for (const Op& op : ops) lowest = std::min(lowest, queue_of_stream[std::size_t(op.stream)]);
  for (const Op& op : ops) {
    const std::uint32_t merged = queue_of_stream[std::size_t(op.stream)];
    std::replace(queue_of_stream.begin(), queue_of_stream.end(), merged, lowest);
  }
}

}  // namespace

bool meets_others(const RoutineFacts& facts, const Expansion& expansion,
                  const NumberedChannels& channels, std::size_t op) {
  if (facts.channel_op[op] == RoutineFacts::kLocal) return false;
  return !channels.alone[expansion.channel_ops[facts.channel_op[op]].channel];
}

std::vector<LinkUse> shared_link_uses(const Expansion& expansion, const RankTopology& topology,
                                      std::int64_t rank) {
  const Program& program = *expansion.program;
  const std::vector<RankChannel>& channels = topology.channels[std::size_t(rank)];
  const std::array<bool, kStreams> of_blocks = streams_of_blocks(expansion);
  std::vector<LinkUse> uses;
  std::array<std::uint32_t, kStreams> passes = {};
  for (const ChannelOp& op : expansion.channel_ops) {
    const Routine& routine = program.at(op.routine);
    LinkUse& use = uses.emplace_back();
    if (routine.ops.size() > 1 || of_blocks[std::size_t(routine.ops[0].stream)]) continue;
    use = topology.link_uses[channels[op.channel].cost][op.position];
    passes[std::size_t(routine.ops[0].stream)] |= use.links;
  }
  std::uint32_t once = 0, shared = 0;
  for (std::uint32_t stream : passes) {
    shared |= once & stream;
    once |= stream;
  }
  for (LinkUse& use : uses) {
    use.links &= shared;
    if (use.links == 0) use.latency = {};
  }
  return uses;
}

std::vector<RankRoutine> rank_routines(const Expansion& expansion, const RankTopology& topology,
                                       std::int64_t rank) {
  const std::vector<RankChannel>& channels = topology.channels[std::size_t(rank)];
  const std::vector<LinkUse> uses = shared_link_uses(expansion, topology, rank);
  std::vector<RankRoutine> routines;
  for (std::size_t r = 0; r < expansion.routines.size(); ++r) {
    const RoutineFacts& facts = expansion.routines[r];
    const std::vector<Op>& ops = expansion.program->routines[r].ops;
    RankRoutine& routine = routines.emplace_back();
    routine.durations = facts.durations;
    std::uint32_t events = 0;  // each wait of the host is an event, too
    for (std::size_t op = 0; op < facts.channel_op.size(); ++op) {
      if (op > 0 && facts.host_waits[op - 1]) ++events;
      routine.op_event.push_back(events++);
      if (facts.channel_op[op] == RoutineFacts::kLocal) {
        if (ops[op].stream == Stream::compute) routine.computes += facts.durations[op];
        continue;
      }
      const ChannelOp& channel_op = expansion.channel_ops[facts.channel_op[op]];
      const std::uint32_t cost = channels[channel_op.channel].cost;
      routine.durations[op] = to_picoseconds(topology.costs[cost][channel_op.position].time);
      if (facts.channel_op.size() > 1) continue;
      routine.link_use = uses[facts.channel_op[op]];
      routine.slowdowns = topology.slowdowns[cost][channel_op.position];
    }
  }
  return routines;
}

void compose_routines(const Expansion& expansion, const NumberedChannels& channels,
                      std::vector<RankRoutine>& routines, QueueOfStream& queue_of_stream) {
  const Meeting meeting = find_meeting(expansion, channels);
  for (std::size_t r = 0; r < routines.size(); ++r) {
    if (!may_be_composed(expansion, r, meeting)) continue;
    routines[r].composition = compose_routine(expansion, r, routines[r]);
    join_queues(expansion.program->routines[r].ops, queue_of_stream);
  }
}

const RoutineMap& map_for(const Routine& routine, const AwaitedPorts& awaited,
                          RankRoutine& rank_routine, std::deque<RoutineMap>& maps) {
  for (const auto& [ports, map] : rank_routine.maps) {
    if (ports == awaited) return *map;
  }
  std::vector<std::uint32_t> event_ops;
  for (std::size_t p = 0; p < routine.ports.size(); ++p) {
    if (awaited.has(p)) event_ops.push_back(routine.ports[p].op);
  }
  maps.push_back(rank_routine.composition->map(event_ops));
  rank_routine.maps.emplace_back(awaited, &maps.back());
  return maps.back();
}

}  // namespace plimsoll
