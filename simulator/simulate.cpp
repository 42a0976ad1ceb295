// From Programs to a steady-state Timeline: expand, fold, run steps, record.
#include "simulator/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <variant>

#include "base/error.h"
#include "graph/op_table.h"
#include "simulator/engine/host_engine.h"
#include "simulator/engine/process_run.h"
#include "simulator/ranks/expand.h"
#include "simulator/ranks/shortened_step.h"
#include "simulator/ranks/steady_state.h"
#include "simulator/ranks/step_account.h"
#include "simulator/ranks/stream_ranks.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostSteps = 8;

/// One run of the chosen ranks' step, on the engine that their devices ask for; `whole`: the times
/// of every op are asked for, too.
class Step {
 public:
  Step(std::span<const Expansion> expansions, const LinkTopology& topology,
       const RankChoice& choice, const CostModel& costs, bool whole)
      : expansions_(expansions),
        topology_(topology),
        choice_(choice),
        keep_(whole ? StreamEngine::Keep::all : StreamEngine::Keep::ends) {
    if (costs.host_executes()) {
      processes_ = costs.execution() == Execution::processes;
      std::vector<Beside> besides;
      const auto items = host_items(expansions, topology, choice, besides);
      host_.emplace(items, costs.waking(), besides);
    } else if (!whole) {
      shortened_ = ShortenedStep::of(expansions, topology, choice);
    }
  }

  /// When each rank has finished.
  std::vector<Picoseconds> run(const std::vector<Picoseconds>& starts) {
    if (host_) {
      host_result_ = processes_ ? run_processes(*host_, starts) : host_->run(starts);
      return host_result_.rank_end;
    }
    if (shortened_) {
      if (auto ends = shortened_->run(starts)) return *std::move(ends);
      shortened_.reset();  // other steps will not show it either
    }
    if (!streams_) streams_.emplace(expansions_, topology_, choice_);
    stream_result_ = &streams_->engine().run(starts, keep_);
    return stream_result_->rank_end;
  }

  /// Times of the last run: when each op of the c-th rank, which began at `start`, ran.
  std::vector<ItemTimes> op_times(std::size_t c, Picoseconds start) const {
    return host_ ? host_result_.times[c] : streams_->op_times(c, *stream_result_, start);
  }

 private:
  /// Rendezvous ids and the cost of communications complete the items.
  static std::vector<std::vector<Item>> host_items(std::span<const Expansion> expansions,
                                                   const LinkTopology& topology,
                                                   const RankChoice& choice,
                                                   std::vector<Beside>& besides) {
    std::vector<std::uint32_t> first_beside;  // by cost
    for (const std::vector<Beside>& of_cost : topology.besides) {
      first_beside.push_back(std::uint32_t(besides.size()));
      besides.insert(besides.end(), of_cost.begin(), of_cost.end());
    }
    Channels channels;
    std::vector<std::vector<Item>> ranks;
    for (std::int64_t rank : choice.representatives) {
      const Expansion& expansion = expansions[topology.expansion[std::size_t(rank)]];
      const std::vector<RankLink>& links = topology.links[std::size_t(rank)];
      const RankChannels own = channels_of(expansion, topology, choice, rank, channels);
      std::vector<std::uint64_t> issued(links.size());
      std::vector<Item>& items = ranks.emplace_back(unroll(expansion));
      std::size_t i = 0;
      for (const Call& call : expansion.program->calls) {
        const std::vector<Op>& ops = expansion.program->at(call.routine).ops;
        const std::vector<std::uint32_t>& link_ops =
            expansion.routines[call.routine.index()].link_op;
        for (std::size_t op = 0; op < ops.size(); ++op) {
          Item& item = items[i++];
          if (link_ops[op] == RoutineFacts::kLocal) {
            item.work = work_of(ops[op].kind);
            continue;
          }
          const LinkOp& link_op = expansion.link_ops[link_ops[op]];
          const std::uint32_t cost = links[link_op.link].cost;
          item.rendezvous = own.channel[link_op.link] << 32 | issued[link_op.link]++;
          item.duration = to_picoseconds(topology.costs[cost][link_op.position].time);
          if (!first_beside.empty()) item.beside = first_beside[cost] + link_op.position;
        }
      }
    }
    return ranks;
  }

  static Work work_of(OpKind kind) {
    return row(kind).op_class == OpClass::memory_bound ? Work::memory : Work::matmul;
  }

  std::span<const Expansion> expansions_;
  const LinkTopology& topology_;
  const RankChoice& choice_;
  std::optional<ShortenedStep> shortened_;
  std::optional<HostEngine> host_;
  bool processes_ = false;
  std::optional<StreamRanks> streams_;
  EngineResult host_result_;
  StreamEngine::Keep keep_;
  const StreamEngine::Result* stream_result_ = nullptr;
};

/// The steady state: when each rank starts its last simulated step, and the period.
struct SteadyState {
  std::vector<Picoseconds> starts;
  Picoseconds period;
};

/// `run`: when each rank ends a step that it begins then; nothing ends all.
template <class Run>
std::optional<SteadyState> run_to_steady_state(std::size_t ranks, Run run) {
  std::vector<std::vector<Picoseconds>> begun = {std::vector<Picoseconds>(ranks)};
  Picoseconds before(-1);
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
    if (begun.size() > 2 && last == before) return {{begun.back(), last}};
    if (begun.size() == kMostSteps) return {{begun.back(), mean_step(begun, ends, 2)}};
    before = last;
    begun.push_back(ends);
  }
}

/// One simulated rank: what it ran, and when.
struct RankRun {
  std::int64_t rank = 0;
  const Expansion& expansion;
  const std::vector<ItemTimes>& times;
  Picoseconds origin;  ///< time 0 of the result
};

Interval interval_of(const RankRun& run, const Call& call, const ItemTimes& times) {
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

/// "mp", "sharding,dp", "pp" of a transfer; empty of a local op.
std::string group_of(const Op& op) {
  if (const auto* params = std::get_if<CollectiveParams>(&op.params)) return to_text(params->group);
  return std::holds_alternative<TransferParams>(op.params) ? "pp" : "";
}

/// The groups that the ops of record_ops communicate over, in its order.
void record_groups(const Program& program, Simulation& simulation) {
  simulation.groups = {""};
  std::map<std::uint32_t, std::vector<std::uint16_t>> of_routine;
  for (const Call& call : program.calls) {
    const auto [known, added] = of_routine.try_emplace(std::uint32_t(call.routine.index()));
    for (const Op& op : added ? program.at(call.routine).ops : std::vector<Op>()) {
      auto& names = simulation.groups;
      const std::string name = group_of(op);
      const auto at = std::find(names.begin(), names.end(), name);
      known->second.push_back(std::uint16_t(at - names.begin()));
      if (at == names.end()) names.push_back(name);
    }
    simulation.critical_group.insert(simulation.critical_group.end(), known->second.begin(),
                                     known->second.end());
  }
}

/// Calls of one op are that op.
void record_calls(const RankRun& run, std::vector<Interval>& into) {
  const Program& program = *run.expansion.program;
  std::size_t i = 0;
  for (const Call& call : program.calls) {
    const std::vector<Op>& ops = program.at(call.routine).ops;
    std::optional<ItemTimes> span;
    for (std::size_t op = 0; op < ops.size(); ++op) {
      const ItemTimes& times = run.times[i + op];
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
    const bool has_items = i < run.times.size();
    call_begins.push_back(has_items ? run.times[i].begin - run.origin : Picoseconds());
    i += program.at(call.routine).ops.size();
  }
  return memory_over_time(program, run.rank, call_begins);
}

/// At most so many intervals are recorded: making room anew costs more than writing them.
std::size_t intervals_of(std::span<const Expansion> expansions, const LinkTopology& topology,
                         const RankChoice& choice, Detail detail) {
  if (detail != Detail::ops && detail != Detail::calls) return 0;
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

/// The results that `detail` asks for, for one rank.
void record(const RankRun& run, Detail detail, Simulation& simulation) {
  if (run.rank == simulation.critical_rank) {
    record_ops(run, simulation.critical);
    record_groups(*run.expansion.program, simulation);
  }
  if (detail == Detail::critical) return;
  std::vector<Interval>& intervals = simulation.timeline.intervals;
  detail == Detail::calls ? record_calls(run, intervals) : record_ops(run, intervals);
  simulation.timeline.memory.push_back(record_memory(run));
}

}  // namespace

std::optional<Seconds> step_time(std::span<const Program> fewer, const FewerMicroBatches& stand_for,
                                 const CostModel& costs) {
  if (costs.host_executes()) return std::nullopt;
  const std::vector<Expansion> expansions = expand(fewer, costs);
  const LinkTopology topology = resolve_links(expansions, costs);
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
  const LinkTopology topology = resolve_links(expansions, costs);
  const RankChoice choice = choose_ranks(topology, folding);
  Step step(expansions, topology, choice, costs, detail != Detail::none);
  const SteadyState steady =
      *run_to_steady_state(choice.representatives.size(),
                           [&](const auto& starts) { return std::optional(step.run(starts)); });

  Simulation simulation;
  simulation.step_time = steady.period.seconds();
  for (std::uint32_t c : choice.class_of) {
    simulation.represented_by.push_back(choice.representatives[c]);
  }
  const auto expansion_of = [&](std::int64_t rank) -> const Expansion& {
    return expansions[topology.expansion[std::size_t(rank)]];
  };
  Picoseconds longest(-1);
  for (std::int64_t rank : choice.representatives) {
    const StepAccount account = account_for(expansion_of(rank), topology, rank);
    simulation.worst = std::max(simulation.worst, account.worst);
    simulation.computes.push_back(account.local);
    if (account.local > longest) {
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
  const Picoseconds origin = *std::min_element(steady.starts.begin(), steady.starts.end());
  simulation.timeline.intervals.reserve(intervals_of(expansions, topology, choice, detail));
  for (std::size_t c = 0; c < choice.representatives.size() && detail != Detail::none; ++c) {
    const std::int64_t rank = choice.representatives[c];
    if (detail == Detail::critical && rank != simulation.critical_rank) continue;
    record({rank, expansion_of(rank), step.op_times(c, steady.starts[c]), origin}, detail,
           simulation);
  }
  sort_intervals(simulation.timeline);
  return simulation;
}

}  // namespace plimsoll
