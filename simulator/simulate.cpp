// From Programs to a steady-state Timeline: expand, fold, run steps, record.
#include "simulator/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <variant>

#include "base/error.h"
#include "graph/op_table.h"
#include "simulator/engine/core_ops.h"
#include "simulator/engine/process_engine.h"
#include "simulator/engine/thread_engine.h"
#include "simulator/ranks/build_stream_ranks.h"
#include "simulator/ranks/expand.h"
#include "simulator/ranks/shortened_step.h"
#include "simulator/ranks/steady_state.h"
#include "simulator/ranks/step_account.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostSteps = 8;

LocalWork work_of(OpKind kind) {
  return row(kind).op_class == OpClass::memory_bound ? LocalWork::memory : LocalWork::matmul;
}

/// The ops of the chosen ranks for the engines of CPU cores, and what slows them.
struct CoreInput {
  std::vector<std::vector<TimedOp>> ranks;
  std::vector<MutualSlowdown> slowdowns;
};

/// Unrolls the calls of each rank, and completes its communications by rendezvous and cost.
CoreInput core_input(std::span<const Expansion> expansions, const RankTopology& topology,
                     const RankChoice& choice) {
  CoreInput input;
  std::vector<std::uint32_t> first_slowdown;  // by cost
  for (const std::vector<MutualSlowdown>& slowdowns : topology.mutual_slowdowns) {
    first_slowdown.push_back(std::uint32_t(input.slowdowns.size()));
    input.slowdowns.insert(input.slowdowns.end(), slowdowns.begin(), slowdowns.end());
  }
  ChannelNumbers numbers;
  for (std::int64_t rank : choice.representatives) {
    const Expansion& expansion = expansions[topology.expansion[std::size_t(rank)]];
    const std::vector<RankChannel>& channels = topology.channels[std::size_t(rank)];
    const NumberedChannels own = number_channels(expansion, topology, choice, rank, numbers);
    std::vector<std::uint64_t> issued(channels.size());
    std::vector<TimedOp>& timed_ops = input.ranks.emplace_back(unroll(expansion));
    std::size_t i = 0;
    for (const Call& call : expansion.program->calls) {
      const std::vector<Op>& ops = expansion.program->at(call.routine).ops;
      const std::vector<std::uint32_t>& channel_ops =
          expansion.routines[call.routine.index()].channel_op;
      for (std::size_t op = 0; op < ops.size(); ++op) {
        TimedOp& timed = timed_ops[i++];
        if (channel_ops[op] == RoutineFacts::kLocal) {
          timed.work = work_of(ops[op].kind);
          continue;
        }
        const ChannelOp& channel_op = expansion.channel_ops[channel_ops[op]];
        const std::uint32_t channel = channel_op.channel, cost = channels[channel].cost;
        timed.rendezvous = own.number[channel] << 32 | issued[channel]++;
        timed.duration = to_picoseconds(topology.costs[cost][channel_op.position].time);
        if (!first_slowdown.empty()) timed.slowdown = first_slowdown[cost] + channel_op.position;
      }
    }
  }
  return input;
}

/// Runs the chosen ranks' step on the engine that their devices ask for, as often as needed.
/// `by_op`: the ranks whose ops' times are asked for, too.
class Step {
 public:
  Step(std::span<const Expansion> expansions, const RankTopology& topology,
       const RankChoice& choice, const CostModel& costs, std::span<const std::int64_t> by_op)
      : expansions_(expansions), topology_(topology), choice_(choice), by_op_(by_op) {
    if (costs.host_executes()) {
      processes_ = costs.execution() == Execution::processes;
      const CoreInput input = core_input(expansions, topology, choice);
      core_ops_.emplace(input.ranks, costs.wake_up(), input.slowdowns);
    } else if (by_op.empty()) {
      shortened_ = ShortenedStep::of(expansions, topology, choice);
    }
  }

  /// Returns when each rank has finished.
  std::vector<Picoseconds> run(const std::vector<Picoseconds>& starts) {
    if (core_ops_) {
      core_result_ =
          processes_ ? run_processes(*core_ops_, starts) : run_threads(*core_ops_, starts);
      return core_result_.rank_end;
    }
    if (shortened_) {
      if (auto ends = shortened_->run(starts)) return *std::move(ends);
      shortened_.reset();  // other steps will not show it either
    }
    if (!streams_) streams_ = build_stream_ranks(expansions_, topology_, choice_, {}, by_op_);
    stream_result_ = &streams_->engine.run(
        starts, by_op_.empty() ? StreamEngine::Record::ends : StreamEngine::Record::all);
    return stream_result_->rank_end;
  }

  /// Returns when each op of the c-th rank ran in the last run.
  std::vector<OpTimes> times_of(std::size_t c) const {
    return core_ops_ ? core_result_.times[c] : op_times(streams_->ranks[c], *stream_result_);
  }

 private:
  std::span<const Expansion> expansions_;
  const RankTopology& topology_;
  const RankChoice& choice_;
  std::optional<ShortenedStep> shortened_;
  std::optional<CoreOps> core_ops_;
  bool processes_ = false;
  std::optional<StreamRanks> streams_;
  EngineResult core_result_;
  std::span<const std::int64_t> by_op_;
  const StreamEngine::Result* stream_result_ = nullptr;
};

/// When each rank starts its last simulated step, and the time from step to step.
struct SteadyState {
  std::vector<Picoseconds> starts;
  Picoseconds period;
};

/// `run` takes when each rank begins a step, and returns when each ends it; nothing: gives up.
template <class Run>
std::optional<SteadyState> run_to_steady_state(std::size_t ranks, Run run) {
  std::vector<std::vector<Picoseconds>> begun = {std::vector<Picoseconds>(ranks)};
  std::optional<Picoseconds> before;
  while (true) {
    const std::optional<std::vector<Picoseconds>> found = run(begun.back());
    if (!found) return std::nullopt;
    const std::vector<Picoseconds>& ends = *found;
    const Picoseconds last = mean_step(begun, ends, 1);
    if (last > kLongestStep) {
      throw InfeasibleError(fmt::format("one step would take longer than {:.0f} days",
                                        kLongestStep.seconds() / Seconds(86400)));
    }
    if (const auto period = cycle_time(begun, ends)) return {{begun.back(), *period}};
    if (begun.size() > 2 && before == last) return {{begun.back(), last}};
    if (begun.size() == kMostSteps) return {{begun.back(), mean_step(begun, ends, 2)}};
    before = last;
    begun.push_back(ends);
  }
}

/// One simulated rank: what it ran, and when.
struct RankRun {
  std::int64_t rank = 0;
  const Expansion& expansion;
  const std::vector<OpTimes>& times;
  Picoseconds origin;  ///< time 0 of the result
};

Interval interval_of(const RankRun& run, const Call& call, const OpTimes& times) {
  Interval interval;
  interval.rank = run.rank;
  interval.kind.reset();
  interval.phase = run.expansion.program->at(call.routine).phase;
  interval.routine = run.expansion.program->at(call.routine).name;
  interval.layer = call.layer;
  interval.micro_batch = call.micro_batch;
  interval.posted = times.posted - run.origin;
  interval.begin = times.begin - run.origin;
  interval.end = times.end - run.origin;
  return interval;
}

void record_ops(const RankRun& run, std::vector<Interval>& into) {
  const Program& program = *run.expansion.program;
  std::size_t i = 0;
  for (const Call& call : program.calls) {
    for (const Op& op : program.at(call.routine).ops) {
      Interval& interval = into.emplace_back(interval_of(run, call, run.times[i++]));
      interval.stream = op.stream;
      interval.kind = op.kind;
      interval.phase = op.phase;
    }
  }
}

/// "mp", "sharding,dp", "pp" of a transfer, "host" of a copy of activations; empty of a local op.
std::string group_of(const Op& op) {
  if (is_of_host(op.kind) && op.phase != Phase::optimizer) return "host";
  if (const auto* params = std::get_if<CollectiveParams>(&op.params)) return to_text(params->group);
  return std::holds_alternative<TransferParams>(op.params) ? "pp" : "";
}

/// Returns the index of a name in `names`, and adds it where it is new.
std::uint16_t index_of(const std::string& name, std::vector<std::string>& names) {
  const auto at = std::find(names.begin(), names.end(), name);
  const auto index = std::uint16_t(at - names.begin());
  if (at == names.end()) names.push_back(name);
  return index;
}

void record_critical(const RankRun& run, Simulation& simulation) {
  const Program& program = *run.expansion.program;
  simulation.groups = {""};
  simulation.critical.reserve(run.times.size());
  std::map<std::uint32_t, std::vector<std::uint16_t>> groups_of_routine;
  std::size_t i = 0;
  for (const Call& call : program.calls) {
    const std::vector<Op>& ops = program.at(call.routine).ops;
    const auto [groups, added] = groups_of_routine.try_emplace(std::uint32_t(call.routine.index()));
    for (std::size_t op = 0; op < ops.size(); ++op) {
      if (added) groups->second.push_back(index_of(group_of(ops[op]), simulation.groups));
      const OpTimes& times = run.times[i++];
      simulation.critical.push_back({times.posted - run.origin, times.begin - run.origin,
                                     times.end - run.origin, ops[op].kind, ops[op].stream,
                                     ops[op].phase, groups->second[op]});
    }
  }
}

/// Records an interval for each call: that of its op, or of its ops on the compute stream.
void record_calls(const RankRun& run, std::vector<Interval>& into) {
  const Program& program = *run.expansion.program;
  std::size_t i = 0;
  for (const Call& call : program.calls) {
    const std::vector<Op>& ops = program.at(call.routine).ops;
    std::optional<OpTimes> span;
    for (std::size_t op = 0; op < ops.size(); ++op) {
      const OpTimes& times = run.times[i + op];
      if (ops.size() > 1 && ops[op].stream != Stream::compute) continue;
      if (!span) span = times;
      span->end = times.end;
    }
    i += ops.size();
    if (!span) continue;
    Interval& interval = into.emplace_back(interval_of(run, call, *span));
    if (ops.size() > 1) continue;
    interval.stream = ops[0].stream;
    interval.kind = ops[0].kind;
  }
}

RankMemory record_memory(const RankRun& run) {
  const Program& program = *run.expansion.program;
  std::vector<Picoseconds> call_begins;
  std::size_t i = 0;
  for (const Call& call : program.calls) {
    const bool has_ops = i < run.times.size();
    call_begins.push_back(has_ops ? run.times[i].begin - run.origin : Picoseconds());
    i += program.at(call.routine).ops.size();
  }
  return memory_over_time(program, run.rank, call_begins);
}

/// The most intervals that are recorded. Making room for them one by one costs more than writing
/// them.
std::size_t intervals_of(std::span<const Expansion> expansions, const RankTopology& topology,
                         const RankChoice& choice, Detail detail) {
  if (detail == Detail::none || detail == Detail::critical) return 0;
  std::size_t intervals = 0;
  for (const std::int64_t rank : choice.representatives) {
    const Expansion& expansion = expansions[topology.expansion[std::size_t(rank)]];
    for (std::size_t r = 0; r < expansion.calls.size(); ++r) {
      const std::size_t ops = expansion.program->routines[r].ops.size();
      intervals += std::size_t(expansion.calls[r]) * (detail == Detail::ops ? ops : 1);
    }
  }
  return intervals;
}

/// Records what `detail` asks for, for one rank.
void record(const RankRun& run, Detail detail, Simulation& simulation) {
  if (run.rank == simulation.critical_rank) {
    record_critical(run, simulation);
    if (detail == Detail::calls_and_critical) {
      Timeline critical;
      critical.intervals.reserve(run.times.size());
      record_ops(run, critical.intervals);
      sort_intervals(critical);
      simulation.critical_intervals = std::move(critical.intervals);
    }
  }
  if (detail == Detail::critical) return;
  std::vector<Interval>& intervals = simulation.timeline.intervals;
  detail == Detail::ops ? record_ops(run, intervals) : record_calls(run, intervals);
  simulation.timeline.memory.push_back(record_memory(run));
}

}  // namespace

RankMemory memory_over_time(const Program& program, std::int64_t rank,
                            std::span<const Picoseconds> call_begins) {
  const MemoryPeak most = memory_peak(program);
  const std::vector<BytesByRole> live = live_bytes(program);
  RankMemory result{rank, most.peak, most.by_role, program.arena_bytes, {}};
  Picoseconds time;
  for (std::size_t c = 0; c < live.size(); ++c) {
    time = c == 0 ? call_begins[0] : std::max(time, call_begins[c]);
    if (c == 0 || live[c] != live[c - 1]) result.curve.push_back({time, live[c]});
  }
  return result;
}

std::optional<Seconds> step_time(std::span<const Program> fewer, const FewerMicroBatches& stand_for,
                                 const CostModel& costs) {
  if (costs.host_executes()) return std::nullopt;
  const std::vector<Expansion> expansions = expand(fewer, costs);
  const RankTopology topology = resolve_channels(expansions, costs);
  const RankChoice choice = choose_ranks(topology, Folding::folded);
  std::optional<ShortenedStep> step = ShortenedStep::of(expansions, topology, choice, stand_for);
  if (!step) return std::nullopt;
  const auto steady = run_to_steady_state(choice.representatives.size(),
                                          [&](const auto& starts) { return step->run(starts); });
  if (!steady) return std::nullopt;
  return steady->period.seconds();
}

Simulation simulate(std::span<const Program> programs, const CostModel& costs, Folding folding,
                    Detail detail) {
  INVARIANT(!programs.empty(), "no Program to simulate");
  const std::vector<Expansion> expansions = expand(programs, costs);
  const RankTopology topology = resolve_channels(expansions, costs);
  const RankChoice choice = choose_ranks(topology, folding);
  Simulation simulation;
  for (std::uint32_t c : choice.class_of) {
    simulation.represented_by.push_back(choice.representatives[c]);
  }
  const auto expansion_of = [&](std::int64_t rank) -> const Expansion& {
    return expansions[topology.expansion[std::size_t(rank)]];
  };
  std::optional<Picoseconds> longest;
  for (std::int64_t rank : choice.representatives) {
    const StepAccount account = account_for(expansion_of(rank), topology, rank);
    simulation.worst = std::max(simulation.worst, account.worst);
    simulation.computes.push_back(account.local);
    if (!longest || account.local > *longest) {
      longest = account.local;
      simulation.by_provenance = account.by_provenance;
      simulation.critical_rank = rank;
    }
  }
  const std::int64_t critical = simulation.critical_rank;
  simulation.open = open_time(expansion_of(critical), topology, critical);
  simulation.measured = measured_shares(expansion_of(critical), topology, critical);
  if (detail != Detail::none) {
    simulation.out_of_range = out_of_range(expansion_of(critical), topology, critical);
  }
  std::vector<std::int64_t> by_op;
  if (detail == Detail::critical) {
    by_op = {critical};
  } else if (detail != Detail::none) {
    by_op = choice.representatives;
  }
  Step step(expansions, topology, choice, costs, by_op);
  const SteadyState steady =
      *run_to_steady_state(choice.representatives.size(),
                           [&](const auto& starts) { return std::optional(step.run(starts)); });
  simulation.step_time = steady.period.seconds();
  const Picoseconds origin = *std::min_element(steady.starts.begin(), steady.starts.end());
  simulation.timeline.intervals.reserve(intervals_of(expansions, topology, choice, detail));
  for (const std::int64_t rank : by_op) {
    const std::vector<OpTimes> times = step.times_of(choice.class_of[std::size_t(rank)]);
    record({rank, expansion_of(rank), times, origin}, detail, simulation);
  }
  sort_intervals(simulation.timeline);
  return simulation;
}

}  // namespace plimsoll
