// Lays out one rank after the other, call by call, in the order in which their hosts issue.
#include "simulator/ranks/build_stream_ranks.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "simulator/ranks/framework_waits.h"
#include "simulator/ranks/kernel_delays.h"

namespace plimsoll {
namespace {

using Event = StreamEngine::Event;

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

}  // namespace plimsoll
