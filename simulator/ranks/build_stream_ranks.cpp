// Lays out one rank after the other, call by call, in the order in which their hosts issue.
#include "simulator/ranks/build_stream_ranks.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/error.h"
#include "simulator/ranks/framework_waits.h"
#include "simulator/ranks/kernel_delays.h"

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

using Event = StreamEngine::Event;

/// Adds the events that a call of `rank.calls` waits for. The calls before it must be laid out.
void add_awaited(const StreamRank& rank, std::size_t call,
                 std::vector<StreamEngine::Event>& events) {
  const std::uint32_t from = call > 0 ? rank.calls[call - 1].last_wait : 0;
  for (std::uint32_t w = from; w < rank.calls[call].last_wait; ++w) {
    const StreamRank::CallWait wait = rank.waits[w];
    const StreamRank::EngineCall& awaited = rank.calls[wait.call];
    const RankRoutine& routine = rank.routines[awaited.routine];
    if (routine.composition) {
      events.push_back(awaited.first + (wait.port ? awaited.awaited.event(*wait.port) : 0));
    } else if (wait.port) {
      const auto& ports = rank.expansion->program->routines[awaited.routine].ports;
      events.push_back(awaited.first + routine.op_event[ports.at(*wait.port).op]);
    } else {
      for (std::uint32_t last : rank.expansion->routines[awaited.routine].last_ops) {
        events.push_back(awaited.first + routine.op_event[last]);
      }
    }
  }
}

/// Reads the calls that are not skipped, and which of their ports are awaited.
void read_calls(StreamRank& rank) {
  const Program& program = *rank.expansion->program;
  const SkippedCalls& skipped = rank.skipped;
  rank.calls.resize(program.calls.size() - skipped.calls());
  rank.waits.reserve(2 * rank.calls.size());
  std::size_t next = 0;
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    if (skipped.has(c)) c = skipped.to;
    StreamRank::EngineCall& call = rank.calls[next++];
    call.routine = std::uint32_t(program.calls[c].routine.index());
    for (const Wait& wait : program.calls[c].waits) {
      INVARIANT(wait.call < c, "a call waits for a later one");
      const std::size_t awaited = skipped.awaited(c, wait.call);
      if (wait.port) rank.calls[awaited].awaited.add(*wait.port);
      rank.waits.push_back({std::uint32_t(awaited), wait.port});
    }
    call.last_wait = std::uint32_t(rank.waits.size());
  }
}

/// Adds the calls of one rank to the engine.
class RankBuilder {
 public:
  RankBuilder(StreamRanks& all, StreamRank& rank, const NumberedChannels& channels)
      : all_(all),
        engine_(all.engine),
        rank_(rank),
        program_(*rank.expansion->program),
        channels_(channels),
        framework_(*rank.expansion),
        met_(channels.number.size()) {}

  void add_calls();

 private:
  /// A call that is one communication.
  struct Communication {
    Event event = 0;
    Stream stream = Stream::compute;
    std::size_t call = 0;  ///< index into rank_.calls
  };

  void begin_cycle(std::size_t call);
  void add_call(std::size_t call);
  void add_ops(RoutineId routine);
  void add_host_wait(const Op& op);
  void add_delays(std::size_t call);
  void wait_for(std::span<const Event> events);

  StreamRanks& all_;
  StreamEngine& engine_;
  StreamRank& rank_;
  const Program& program_;
  const NumberedChannels& channels_;
  FrameworkWaits framework_;
  KernelDelays delays_;
  std::size_t next_ = 0;                       ///< of rank_.calls: the one that is added now
  std::vector<Communication> communications_;  ///< ascending events
  std::vector<std::uint64_t> met_;             ///< by channel: rendezvous so far
  std::vector<Event> call_waits_, op_waits_;   ///< of the call, and of the op, that is added now
};

void RankBuilder::add_calls() {
  read_calls(rank_);
  const bool whole = !rank_.skipped.any();
  for (std::size_t c = 0; c < program_.calls.size(); ++c) {
    if (!whole && c == rank_.skipped.from) {
      const bool alike = delays_.leave_out(rank_.skipped.cycle_count());
      all_.may_be_shortened = alike && all_.may_be_shortened;
      c = rank_.skipped.to;
    }
    begin_cycle(c);
    add_call(c);
    ++next_;
  }
}

/// Notes where cycles begin. A wait of the host before a cycle's first op belongs to the cycle.
void RankBuilder::begin_cycle(std::size_t call) {
  const CallCycles& cycles = rank_.skipped.cycles;
  if (!rank_.skipped.any() || call < cycles.first || call > cycles.end()) return;
  if ((call - cycles.first) % cycles.length != 0) return;
  rank_.cycles.push_back({engine_.events(), engine_.host_time()});
  delays_.begin_cycle();
}

void RankBuilder::add_call(std::size_t call) {
  const RoutineId id = program_.calls[call].routine;
  const Routine& routine = program_.at(id);
  RankRoutine& rank_routine = rank_.routines[id.index()];
  call_waits_.clear();
  add_awaited(rank_, next_, call_waits_);
  const std::vector<Event> transfers = framework_.before_call(call);
  call_waits_.insert(call_waits_.end(), transfers.begin(), transfers.end());
  if (!routine.ops.empty()) add_host_wait(routine.ops[0]);
  add_delays(call);
  StreamRank::EngineCall& laid_out = rank_.calls[next_];
  laid_out.first = engine_.events();
  if (!rank_routine.composition) return add_ops(id);
  engine_.add_call(map_for(routine, laid_out.awaited, rank_routine, all_.maps), call_waits_);
  framework_.issued(id, laid_out.first);
}

/// Adds the ops of a call whose routine is not composed.
void RankBuilder::add_ops(RoutineId id) {
  const Expansion& expansion = *rank_.expansion;
  const std::vector<Op>& ops = program_.at(id).ops;
  const RoutineFacts& facts = expansion.routines[id.index()];
  const RankRoutine& rank_routine = rank_.routines[id.index()];
  const Event first = engine_.events();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (i > 0) add_host_wait(ops[i]);
    StreamEngine::Op op{std::uint32_t(ops[i].stream), expansion.dispatch(facts, i),
                        rank_routine.durations[i]};
    op.link_use = rank_routine.link_use;
    if (meets_others(facts, expansion, channels_, i)) {
      const std::uint32_t channel = expansion.channel_ops[facts.channel_op[i]].channel;
      op.rendezvous = channels_.number[channel] << 32 | met_[channel]++;
    }
    op_waits_.clear();
    for (std::uint32_t wait : ops[i].waits) {
      op_waits_.push_back(first + rank_routine.op_event[wait]);
    }
    if (std::find(facts.first_ops.begin(), facts.first_ops.end(), i) != facts.first_ops.end()) {
      op_waits_.insert(op_waits_.end(), call_waits_.begin(), call_waits_.end());
    }
    framework_.issued(ops[i], facts.host_waits[i], engine_.add_op(op, op_waits_));
  }
}

/// Makes the host wait for what the framework has it wait for before this op.
void RankBuilder::add_host_wait(const Op& op) {
  const std::vector<Event> events = framework_.before_op(op);
  if (events.empty()) return;
  engine_.add_host_wait(rank_.expansion->host_wait, events);
  wait_for(events);
}

/// Delays the call by what its kernels, or the communication that it is, lose to work beside them.
void RankBuilder::add_delays(std::size_t call) {
  const std::size_t r = program_.calls[call].routine.index();
  const RankRoutine& routine = rank_.routines[r];
  const std::vector<std::uint32_t>& channel_ops = rank_.expansion->routines[r].channel_op;
  if (channel_ops.size() == 1 && channel_ops[0] != RoutineFacts::kLocal) {
    const Stream stream = program_.routines[r].ops[0].stream;
    communications_.push_back({engine_.events(), stream, next_});
    engine_.add_delay(std::uint32_t(stream),
                      delays_.communicate(stream, next_, routine.durations[0], routine.slowdowns),
                      StreamEngine::Delay::before_op);
  } else if (routine.computes > Picoseconds()) {
    wait_for(call_waits_);
    engine_.add_delay(std::uint32_t(Stream::compute), delays_.compute(routine.computes),
                      StreamEngine::Delay::in_op);
  }
}

/// Tells delays_ that ops which are issued from here on come after these events.
void RankBuilder::wait_for(std::span<const Event> events) {
  for (const Event event : events) {
    const auto found = std::lower_bound(
        communications_.begin(), communications_.end(), event,
        [](const Communication& communication, Event e) { return communication.event < e; });
    if (found != communications_.end() && found->event == event) {
      delays_.wait_for(found->stream, found->call);
    }
  }
}

/// Counts the rendezvous that ranks skip in each cycle.
class SkippedRendezvous {
 public:
  /// Returns false where this rank skips more or fewer than the others over one of its channels.
  bool agrees(const StreamRank& rank, const NumberedChannels& channels) {
    const Expansion& expansion = *rank.expansion;
    std::map<std::uint64_t, std::size_t> counts;
    for (const std::uint64_t channel : channels.number) counts[channel] = 0;
    const SkippedCalls& skipped = rank.skipped;
    for (std::size_t c = skipped.from; c < skipped.from + skipped.cycles.length; ++c) {
      const RoutineFacts& facts = expansion.routines[expansion.program->calls[c].routine.index()];
      for (const std::uint32_t op : facts.channel_op) {
        if (op == RoutineFacts::kLocal) continue;
        ++counts[channels.number[expansion.channel_ops[op].channel]];
      }
    }
    bool agree = true;
    for (const auto& [channel, count] : counts) {
      const auto [known, added] = by_channel_.try_emplace(channel, count);
      agree = agree && known->second == count;
    }
    return agree;
  }

 private:
  std::map<std::uint64_t, std::size_t> by_channel_;
};

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

StreamRanks build_stream_ranks(std::span<const Expansion> expansions, const RankTopology& topology,
                               const RankChoice& choice, std::span<const SkippedCalls> skipped,
                               std::span<const std::int64_t> by_op) {
  StreamRanks all;
  ChannelNumbers numbers;
  SkippedRendezvous skipped_rendezvous;
  for (const std::int64_t number : choice.representatives) {
    const std::size_t index = topology.expansion[std::size_t(number)];
    const Expansion& expansion = expansions[index];
    const NumberedChannels channels = number_channels(expansion, topology, choice, number, numbers);
    StreamRank& rank = all.ranks.emplace_back();
    rank.expansion = &expansion;
    if (!skipped.empty()) rank.skipped = skipped[index];
    rank.routines = rank_routines(expansion, topology, number);
    std::vector<std::uint32_t> queues(kStreams);
    std::iota(queues.begin(), queues.end(), 0u);
    if (std::ranges::find(by_op, number) == by_op.end())
      compose_routines(expansion, channels, rank.routines, queues);
    all.engine.add_rank(std::move(queues));
    RankBuilder(all, rank, channels).add_calls();
    rank.events_end = all.engine.events();
    if (!rank.skipped.any()) continue;
    const bool agrees = skipped_rendezvous.agrees(rank, channels);
    all.may_be_shortened = agrees && all.may_be_shortened;
  }
  return all;
}

std::vector<OpTimes> op_times(const StreamRank& rank, const StreamEngine::Result& result) {
  INVARIANT(!rank.skipped.any(), "times of a step that calls were skipped of");
  std::vector<OpTimes> times;
  for (const StreamRank::EngineCall& call : rank.calls) {
    const RankRoutine& routine = rank.routines[call.routine];
    INVARIANT(!routine.composition, "times of ops inside a map");
    for (const std::uint32_t op : routine.op_event) {
      const StreamEngine::Event event = call.first + op;
      times.push_back({result.posted[event], result.begin[event], result.fired[event]});
    }
  }
  return times;
}

}  // namespace plimsoll
