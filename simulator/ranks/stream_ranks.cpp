#include "simulator/ranks/stream_ranks.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "simulator/ranks/framework_waits.h"

namespace plimsoll {
namespace {

/// Reading calls is waiting for memory: asks for what the call that is so many further on waits
/// for.
void prefetch_waits(const std::vector<Call>& calls, std::size_t call) {
  constexpr std::size_t kAhead = 12;
  if (call + kAhead < calls.size()) __builtin_prefetch(calls[call + kAhead].waits.data());
}

/// Which ops of the routine meet ranks of other classes.
bool meets(const RoutineFacts& facts, const Expansion& expansion, const RankChannels& channels,
           std::size_t op) {
  if (facts.link_op[op] == RoutineFacts::kLocal) return false;
  return !channels.alone[expansion.link_ops[facts.link_op[op]].link];
}

/// Streams that some routine has ops on beside ops on others: whole calls of it may be worked
/// through at once, so what comes later on one of them may not be known when it could begin.
std::array<bool, kStreams> streams_of_blocks(const Expansion& expansion) {
  std::array<bool, kStreams> result = {};
  const Program& program = *expansion.program;
  for (std::size_t r = 0; r < program.routines.size(); ++r) {
    const std::vector<Op>& ops = program.routines[r].ops;
    const bool called = !expansion.routines[r].link_op.empty();
    const bool several = std::any_of(ops.begin(), ops.end(),
                                     [&](const Op& op) { return op.stream != ops[0].stream; });
    if (!called || !several) continue;
    for (const Op& op : ops) result[std::size_t(op.stream)] = true;
  }
  return result;
}

}  // namespace

std::vector<LinkUse> link_uses(const Expansion& expansion, const LinkTopology& topology,
                               std::int64_t rank) {
  const Program& program = *expansion.program;
  const std::vector<RankLink>& links = topology.links[std::size_t(rank)];
  const std::array<bool, kStreams> of_blocks = streams_of_blocks(expansion);
  std::vector<LinkUse> uses;
  std::array<std::uint32_t, kStreams> passes = {};
  for (const LinkOp& op : expansion.link_ops) {
    const Routine& routine = program.at(op.routine);
    LinkUse& use = uses.emplace_back();
    if (routine.ops.size() > 1 || of_blocks[std::size_t(routine.ops[0].stream)]) continue;
    use = topology.link_uses[links[op.link].cost][op.position];
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

void StreamRanks::read_calls(SimulatedRank& rank) {
  const Program& program = *rank.expansion->program;
  const LeftOut& left_out = rank.left_out;
  rank.calls.resize(program.calls.size() - left_out.calls());
  rank.waits.reserve(2 * rank.calls.size());
  std::size_t next = 0;
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    if (left_out.has(c)) c = left_out.to;
    prefetch_waits(program.calls, c);
    SimulatedRank::LaidOut& laid_out = rank.calls[next++];
    laid_out.routine = std::uint32_t(program.calls[c].routine.index());
    for (const Wait& wait : program.calls[c].waits) {
      INVARIANT(wait.call < c, "a call waits for a later one");
      const std::size_t awaited = left_out.awaited(c, wait.call);
      if (wait.port) rank.calls[awaited].awaited.add(*wait.port);
      rank.waits.push_back(
          {std::uint32_t(awaited), wait.port ? std::uint32_t(*wait.port) : SimulatedRank::kWhole});
    }
    laid_out.last_wait = std::uint32_t(rank.waits.size());
  }
}

StreamRanks::StreamRanks(std::span<const Expansion> expansions, const LinkTopology& topology,
                         const RankChoice& choice, std::span<const LeftOut> left_out) {
  Channels channels;
  for (std::int64_t rank : choice.representatives) {
    const std::size_t expansion = topology.expansion[std::size_t(rank)];
    add_rank(expansions[expansion], left_out.empty() ? LeftOut() : left_out[expansion], topology,
             choice, rank, channels);
  }
}

void StreamRanks::add_rank(const Expansion& expansion, const LeftOut& left_out,
                           const LinkTopology& topology, const RankChoice& choice,
                           std::int64_t number, Channels& channels) {
  const RankChannels own = channels_of(expansion, topology, choice, number, channels);
  const std::vector<RankLink>& links = topology.links[std::size_t(number)];
  const std::vector<LinkUse> uses = link_uses(expansion, topology, number);
  SimulatedRank& rank = ranks_.emplace_back();
  rank.expansion = &expansion;
  rank.left_out = left_out;
  for (std::size_t r = 0; r < expansion.routines.size(); ++r) {
    const RoutineFacts& facts = expansion.routines[r];
    const std::vector<Op>& ops = expansion.program->routines[r].ops;
    RankRoutine& routine = rank.routines.emplace_back();
    routine.durations = facts.durations;
    std::uint32_t events = 0;  // a host's wait is one, too
    for (std::size_t op = 0; op < facts.link_op.size(); ++op) {
      if (op > 0 && facts.host_waits[op - 1]) ++events;
      routine.op_event.push_back(events++);
      if (facts.link_op[op] == RoutineFacts::kLocal) {
        if (ops[op].stream == Stream::compute) routine.computes += facts.durations[op];
        continue;
      }
      const LinkOp& link_op = expansion.link_ops[facts.link_op[op]];
      const std::uint32_t cost = links[link_op.link].cost;
      routine.durations[op] = to_picoseconds(topology.costs[cost][link_op.position].time);
      if (facts.link_op.size() > 1) continue;
      routine.link_use = uses[facts.link_op[op]];
      routine.slowdowns = topology.slowdowns[cost][link_op.position];
    }
  }
  engine_.add_rank(compose_routines(rank, own));
  add_calls(rank, own);
  rank.events_end = engine_.events();
  if (left_out.any()) compare_left_out(rank, own);
}

std::vector<std::uint32_t> StreamRanks::compose_routines(SimulatedRank& rank,
                                                         const RankChannels& channels) {
  const Expansion& expansion = *rank.expansion;
  const Program& program = *expansion.program;
  std::vector<bool> alone(program.routines.size(), true);
  std::array<bool, kStreams> stream_meets = {};
  for (std::size_t r = 0; r < program.routines.size(); ++r) {
    const RoutineFacts& facts = expansion.routines[r];
    for (std::size_t op = 0; op < facts.link_op.size(); ++op) {
      if (!meets(facts, expansion, channels, op)) continue;
      alone[r] = false;
      stream_meets[std::size_t(program.routines[r].ops[op].stream)] = true;
    }
  }
  std::vector<std::uint32_t> lane_of_stream(kStreams);
  for (std::uint32_t s = 0; s < kStreams; ++s) lane_of_stream[s] = s;
  for (std::size_t r = 0; r < program.routines.size(); ++r) {
    const std::vector<Op>& ops = program.routines[r].ops;
    const bool called = !expansion.routines[r].link_op.empty();
    const bool free = std::none_of(
        ops.begin(), ops.end(), [&](const Op& op) { return stream_meets[std::size_t(op.stream)]; });
    if (!called || !alone[r] || !free || ops.size() < 2) continue;
    rank.routines[r].composition = compose_routine(expansion, r, rank.routines[r]);
    std::uint32_t lowest = lane_of_stream[std::size_t(ops[0].stream)];
    for (const Op& op : ops) lowest = std::min(lowest, lane_of_stream[std::size_t(op.stream)]);
    for (const Op& op : ops) {
      const std::uint32_t merged = lane_of_stream[std::size_t(op.stream)];
      std::replace(lane_of_stream.begin(), lane_of_stream.end(), merged, lowest);
    }
  }
  return lane_of_stream;
}

Composition StreamRanks::compose_routine(const Expansion& expansion, std::size_t index,
                                         const RankRoutine& of_rank) {
  const Routine& routine = expansion.program->routines[index];
  std::vector<RoutineOp> ops;
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    ops.push_back({std::uint32_t(routine.ops[i].stream),
                   expansion.dispatch(expansion.routines[index], i), of_rank.durations[i],
                   routine.ops[i].waits});
    if (expansion.routines[index].host_waits[i]) ops.back().host_wait = expansion.host_wait;
  }
  return Composition(ops);
}

const RoutineMap& StreamRanks::map_for(const Routine& routine, const AwaitedPorts& awaited,
                                       RankRoutine& of_rank) {
  for (const auto& [ports, map] : of_rank.maps) {
    if (ports == awaited) return *map;
  }
  std::vector<std::uint32_t> event_ops;
  for (std::size_t p = 0; p < routine.ports.size(); ++p) {
    if (awaited.has(p)) event_ops.push_back(routine.ports[p].op);
  }
  maps_.push_back(of_rank.composition->map(event_ops));
  of_rank.maps.emplace_back(awaited, &maps_.back());
  return maps_.back();
}

void StreamRanks::add_awaited(const SimulatedRank& rank, std::size_t call,
                              std::vector<StreamEngine::Event>& events) {
  const std::uint32_t from = call > 0 ? rank.calls[call - 1].last_wait : 0;
  for (std::uint32_t w = from; w < rank.calls[call].last_wait; ++w) {
    const SimulatedRank::AwaitedCall wait = rank.waits[w];
    const SimulatedRank::LaidOut& awaited = rank.calls[wait.call];
    const RankRoutine& routine = rank.routines[awaited.routine];
    const bool whole = wait.port == SimulatedRank::kWhole;
    if (routine.composition) {
      events.push_back(awaited.first + (whole ? 0 : awaited.awaited.event(wait.port)));
    } else if (!whole) {
      const auto& ports = rank.expansion->program->routines[awaited.routine].ports;
      events.push_back(awaited.first + routine.op_event[ports.at(wait.port).op]);
    } else {
      for (std::uint32_t last : rank.expansion->routines[awaited.routine].last_ops) {
        events.push_back(awaited.first + routine.op_event[last]);
      }
    }
  }
}

/// Where hosts wait before a cycle's first op, that is of the cycle.
void StreamRanks::begin_call(SimulatedRank& rank, std::size_t call, KernelDelays& delays) {
  const LeftOut& left_out = rank.left_out;
  const CallCycles& cycles = left_out.cycles;
  if (!left_out.any() || call < cycles.first || call > cycles.end()) return;
  if ((call - cycles.first) % cycles.length != 0) return;
  rank.cycles.push_back({engine_.events(), engine_.host_time()});
  delays.begin_cycle();
}

void StreamRanks::wait_for(const SimulatedRank& rank, std::span<const StreamEngine::Event> events,
                           KernelDelays& delays) {
  for (const StreamEngine::Event event : events) {
    const auto found = std::lower_bound(
        rank.communications.begin(), rank.communications.end(), event,
        [](const auto& communication, StreamEngine::Event e) { return communication.event < e; });
    if (found != rank.communications.end() && found->event == event)
      delays.wait_for(found->stream, found->call);
  }
}

void StreamRanks::add_delays(SimulatedRank& rank, std::size_t call,
                             std::span<const StreamEngine::Event> awaited, KernelDelays& delays) {
  const Program& program = *rank.expansion->program;
  const std::size_t r = program.calls[call].routine.index();
  const RankRoutine& routine = rank.routines[r];
  const std::vector<std::uint32_t>& link_ops = rank.expansion->routines[r].link_op;
  Picoseconds delay;
  if (link_ops.size() == 1 && link_ops[0] != RoutineFacts::kLocal) {
    const Stream stream = program.routines[r].ops[0].stream;
    const std::size_t place = rank.laid_out;
    rank.communications.push_back({engine_.events(), stream, place});
    engine_.add_delay(std::uint32_t(stream),
                      delays.communicate(stream, place, routine.durations[0], routine.slowdowns),
                      false);
  } else if (routine.computes > Picoseconds()) {
    wait_for(rank, awaited, delays);
    delay = delays.compute(routine.computes);
    engine_.add_delay(std::uint32_t(Stream::compute), delay, true);
  }
  if (!rank.left_out.any()) rank.delays.push_back(delay);
}

void StreamRanks::compare_left_out(const SimulatedRank& rank, const RankChannels& channels) {
  const Expansion& expansion = *rank.expansion;
  std::map<std::uint64_t, std::size_t> meetings;
  for (const std::uint64_t channel : channels.channel) meetings[channel] = 0;
  const LeftOut& left_out = rank.left_out;
  for (std::size_t c = left_out.from; c < left_out.from + left_out.cycles.length; ++c) {
    const RoutineFacts& facts = expansion.routines[expansion.program->calls[c].routine.index()];
    for (const std::uint32_t op : facts.link_op) {
      if (op != RoutineFacts::kLocal) ++meetings[channels.channel[expansion.link_ops[op].link]];
    }
  }
  for (const auto& [channel, count] : meetings) {
    const auto [known, added] = meetings_left_out_.try_emplace(channel, count);
    may_be_shortened_ = may_be_shortened_ && known->second == count;
  }
}

/// One rank whose calls are being added.
struct StreamRanks::Issue {
  Issue(SimulatedRank& rank, const RankChannels& channels)
      : rank(rank), channels(channels), framework(*rank.expansion), met(channels.channel.size()) {}

  SimulatedRank& rank;
  const RankChannels& channels;
  FrameworkWaits framework;
  KernelDelays delays;
  std::vector<std::uint64_t> met;            // so far, by link
  std::vector<StreamEngine::Event> outside;  // what the call waits for
  std::vector<StreamEngine::Event> waits;    // of one op
};

void StreamRanks::add_calls(SimulatedRank& rank, const RankChannels& channels) {
  const Program& program = *rank.expansion->program;
  read_calls(rank);
  const bool whole = !rank.left_out.any();
  rank.host.reserve(whole ? rank.calls.size() : 0);
  rank.delays.reserve(whole ? rank.calls.size() : 0);
  Issue issue(rank, channels);
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    if (!whole && c == rank.left_out.from) {
      const bool alike = issue.delays.leave_out(rank.left_out.left_out_cycles());
      may_be_shortened_ = alike && may_be_shortened_;
      c = rank.left_out.to;
    }
    begin_call(rank, c, issue.delays);
    add_call(issue, c);
    ++rank.laid_out;
  }
}

void StreamRanks::add_call(Issue& issue, std::size_t call) {
  SimulatedRank& rank = issue.rank;
  const Program& program = *rank.expansion->program;
  const RoutineId id = program.calls[call].routine;
  const Routine& routine = program.at(id);
  RankRoutine& of_rank = rank.routines[id.index()];
  issue.outside.clear();
  add_awaited(rank, rank.laid_out, issue.outside);
  const std::vector<StreamEngine::Event> held = issue.framework.before_call(call);
  issue.outside.insert(issue.outside.end(), held.begin(), held.end());
  if (!routine.ops.empty()) host_waits(issue, routine.ops[0]);
  if (!rank.left_out.any()) rank.host.push_back(engine_.host_time());
  add_delays(rank, call, issue.outside, issue.delays);
  SimulatedRank::LaidOut& laid_out = rank.calls[rank.laid_out];
  laid_out.first = engine_.events();
  if (!of_rank.composition) return add_ops(issue, id);
  engine_.add_call(map_for(routine, laid_out.awaited, of_rank), issue.outside);
  issue.framework.issued(id, laid_out.first);
}

void StreamRanks::host_waits(Issue& issue, const Op& op) {
  const std::vector<StreamEngine::Event> events = issue.framework.before_op(op);
  if (events.empty()) return;
  engine_.add_host_wait(issue.rank.expansion->host_wait, events);
  wait_for(issue.rank, events, issue.delays);
}

void StreamRanks::add_ops(Issue& issue, RoutineId id) {
  const Expansion& expansion = *issue.rank.expansion;
  const std::vector<Op>& ops = expansion.program->at(id).ops;
  const RoutineFacts& facts = expansion.routines[id.index()];
  const RankRoutine& of_rank = issue.rank.routines[id.index()];
  const StreamEngine::Event first = engine_.events();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (i > 0) host_waits(issue, ops[i]);
    StreamEngine::Op op{std::uint32_t(ops[i].stream), expansion.dispatch(facts, i),
                        of_rank.durations[i]};
    op.link_use = of_rank.link_use;
    if (meets(facts, expansion, issue.channels, i)) {
      const std::uint32_t link = expansion.link_ops[facts.link_op[i]].link;
      op.rendezvous = issue.channels.channel[link] << 32 | issue.met[link]++;
    }
    issue.waits.clear();
    for (std::uint32_t wait : ops[i].waits) issue.waits.push_back(first + of_rank.op_event[wait]);
    if (std::find(facts.first_ops.begin(), facts.first_ops.end(), i) != facts.first_ops.end()) {
      issue.waits.insert(issue.waits.end(), issue.outside.begin(), issue.outside.end());
    }
    issue.framework.issued(ops[i], facts.host_waits[i], engine_.add_op(op, issue.waits));
  }
}

std::vector<ItemTimes> StreamRanks::op_times(std::size_t c, const StreamEngine::Result& result,
                                             Picoseconds start) const {
  const SimulatedRank& rank = ranks_[c];
  INVARIANT(!rank.left_out.any(), "times of a step that calls were left out of");
  const Expansion& expansion = *rank.expansion;
  std::vector<ItemTimes> times;
  FrameworkWaits framework(expansion);
  std::vector<StreamEngine::Event> outside;
  std::array<Picoseconds, kStreams> clocks;
  clocks.fill(start);
  constexpr auto kCompute = std::size_t(Stream::compute);
  for (std::size_t n = 0; n < expansion.program->calls.size(); ++n) {
    const Call& call = expansion.program->calls[n];
    const std::size_t r = call.routine.index();
    const std::vector<Op>& ops = expansion.program->routines[r].ops;
    const bool composed = rank.routines[r].composition.has_value();
    const std::size_t base = times.size();
    const StreamEngine::HostTime& host = rank.host[n];
    Picoseconds issued = host.issued + (host.since ? result.fired[*host.since] : start);
    Picoseconds latest;
    outside.clear();
    add_awaited(rank, n, outside);
    for (StreamEngine::Event event : outside) {
      latest = std::max(latest, result.fired[event]);
    }
    for (StreamEngine::Event event : framework.before_call(n)) {
      latest = std::max(latest, result.fired[event]);
    }
    if (composed) framework.issued(call.routine, rank.calls[n].first);
    Picoseconds delay = rank.delays[n];  // of the first op that computes, whose time it is
    clocks[kCompute] += delay;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      issued += expansion.dispatch(expansion.routines[r], i);
      Picoseconds& clock = clocks[std::size_t(ops[i].stream)];
      if (!composed) {
        const StreamEngine::Event event = rank.calls[n].first + rank.routines[r].op_event[i];
        framework.issued(ops[i], false, event);
        times.push_back({result.posted[event], result.begin[event], result.fired[event]});
        clock = result.fired[event];
        continue;
      }
      const std::vector<std::uint32_t>& firsts = expansion.routines[r].first_ops;
      Picoseconds ready = issued;
      if (std::find(firsts.begin(), firsts.end(), i) != firsts.end())
        ready = std::max(ready, latest);
      for (std::uint32_t wait : ops[i].waits) ready = std::max(ready, times[base + wait].end);
      Picoseconds begin = std::max(ready, clock);
      clock = begin + rank.routines[r].durations[i];
      if (ops[i].stream == Stream::compute)
        begin = std::max(ready, begin - std::exchange(delay, Picoseconds()));
      times.push_back({begin, begin, clock});
      if (expansion.routines[r].host_waits[i])
        issued = std::max(issued, clock) + expansion.host_wait;
    }
  }
  return times;
}

}  // namespace plimsoll
