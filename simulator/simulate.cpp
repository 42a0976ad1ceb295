// From Programs to a steady-state Timeline: expand, fold, run steps, record.
#include "simulator/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "simulator/engine.h"
#include "simulator/expand.h"
#include "simulator/folding.h"

namespace plimsoll {
namespace {

constexpr int kMostSteps = 8;

/// The ranks that are simulated and how their communications meet, on the level of classes.
struct RankChoice {
  std::vector<std::uint32_t> class_of;        // by rank
  std::vector<std::int64_t> representatives;  // by class: its lowest rank
};

RankChoice choose_ranks(const Topology& topology, Folding folding) {
  RankChoice choice;
  if (folding == Folding::folded) {
    choice.class_of = behaviour_classes(topology);
  } else {
    for (std::size_t rank = 0; rank < topology.stage.size(); ++rank) {
      choice.class_of.push_back(std::uint32_t(rank));
    }
  }
  for (std::size_t rank = 0; rank < choice.class_of.size(); ++rank) {
    if (choice.class_of[rank] == choice.representatives.size()) {
      choice.representatives.push_back(std::int64_t(rank));
    }
  }
  return choice;
}

/// Numbers the channels over which classes meet: the k-th meetings on one channel are one
/// rendezvous.
class Channels {
 public:
  std::uint32_t of_group(const GroupInstance& instance, std::span<const std::uint32_t> class_of) {
    return number({instance.group, classes_in(instance, class_of)});
  }
  std::uint32_t of_transfer(std::uint32_t sender, std::uint32_t receiver) {
    return number({std::nullopt, {sender, receiver}});
  }

 private:
  using Key = std::pair<std::optional<Group>, std::vector<std::uint32_t>>;
  std::uint32_t number(Key key) {
    return numbers_.try_emplace(std::move(key), std::uint32_t(numbers_.size())).first->second;
  }
  std::map<Key, std::uint32_t> numbers_;
};

/// Completes the items of one rank: rendezvous ids and what its communications cost.
std::vector<Item> items_of(const Expansion& expansion, const Topology& topology,
                           const RankChoice& choice, std::int64_t rank, Channels& channels) {
  const std::uint32_t own = choice.class_of[std::size_t(rank)];
  const std::vector<RankLink>& links = topology.links[std::size_t(rank)];
  std::vector<std::uint64_t> channel_of_link;
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (links[l].grouped) {
      channel_of_link.push_back(
          channels.of_group(topology.instances[links[l].instance], choice.class_of));
    } else {
      const std::uint32_t peer = choice.class_of[std::size_t(links[l].peer)];
      channel_of_link.push_back(expansion.links[l].sends ? channels.of_transfer(own, peer)
                                                         : channels.of_transfer(peer, own));
    }
  }
  std::vector<std::uint64_t> issued(links.size());
  std::vector<Item> items = expansion.items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::uint32_t link_op_index = expansion.origins[i].link_op;
    if (link_op_index == expansion.link_ops.size()) continue;
    const LinkOp& link_op = expansion.link_ops[link_op_index];
    items[i].rendezvous = channel_of_link[link_op.link] << 32 | issued[link_op.link]++;
    items[i].duration =
        to_picoseconds(topology.costs[links[link_op.link].cost][link_op.position].time);
  }
  return items;
}

/// The steady state: when each rank starts its last simulated step, what happens in it, and the
/// period.
struct SteadyStep {
  std::vector<Picoseconds> starts;
  EngineResult result;
  Picoseconds period;
};

Picoseconds latest(const std::vector<Picoseconds>& times) {
  return *std::max_element(times.begin(), times.end());
}

SteadyStep run_to_steady_state(const Engine& engine, std::size_t ranks) {
  SteadyStep step{std::vector<Picoseconds>(ranks), {}, Picoseconds(-1)};
  for (int k = 1;; ++k) {
    step.result = engine.run(step.starts);
    const std::vector<Picoseconds>& ends = step.result.rank_end;
    const Picoseconds period = latest(ends) - latest(step.starts);
    if (period > kLongestStep) {
      throw InfeasibleError(fmt::format("one step would take longer than {:.0f} days",
                                        kLongestStep.seconds() / Seconds(86400)));
    }
    // All starts shifted alike: every later step is this one, shifted.
    bool shifted = true;
    for (std::size_t r = 0; r < ranks; ++r) {
      shifted = shifted && ends[r] - step.starts[r] == period;
    }
    const bool repeated = k > 2 && period == step.period;
    step.period = period;
    if (shifted || repeated || k == kMostSteps) return step;
    step.starts = ends;
  }
}

Interval interval_of(const Expansion& expansion, std::size_t item, std::int64_t rank,
                     const ItemTimes& times, Picoseconds origin) {
  const Call& call = expansion.program->calls[expansion.origins[item].call];
  const Routine& routine = expansion.program->at(call.routine);
  const Op& op = routine.ops[expansion.origins[item].op];
  Interval interval;
  interval.rank = rank;
  interval.stream = op.stream;
  interval.kind = op.kind;
  interval.phase = op.phase;
  interval.routine = routine.name;
  interval.layer = call.layer;
  interval.micro_batch = call.micro_batch;
  interval.posted = times.posted - origin;
  interval.begin = times.begin - origin;
  interval.end = times.end - origin;
  return interval;
}

/// Provenance of each op's cost and the seconds it stands for on one rank.
struct Account {
  std::array<Seconds, 4> by_provenance;
  Provenance worst = Provenance::measured;
  Picoseconds local;
};

Account account_for(const Expansion& expansion, const std::vector<RankLink>& links,
                    const Topology& topology, const std::vector<ItemTimes>& times) {
  Account account;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Expansion::Origin& origin = expansion.origins[i];
    const Picoseconds time = times[i].end - times[i].begin;
    const Estimate* estimate = nullptr;
    if (origin.link_op == expansion.link_ops.size()) {
      const RoutineId routine = expansion.program->calls[origin.call].routine;
      estimate = &expansion.local[routine.index()][origin.op];
      account.local += time;
    } else {
      const LinkOp& link_op = expansion.link_ops[origin.link_op];
      estimate = &topology.costs[links[link_op.link].cost][link_op.position];
    }
    account.worst = std::max(account.worst, estimate->provenance);
    account.by_provenance[std::size_t(estimate->provenance)] += time.seconds();
  }
  return account;
}

/// One simulated rank: what it ran, and when.
struct RankRun {
  std::int64_t rank = 0;
  const Expansion& expansion;
  const std::vector<ItemTimes>& times;
  Picoseconds origin;  ///< time 0 of the result
};

void record(const RankRun& run, Timeline& timeline) {
  for (std::size_t i = 0; i < run.times.size(); ++i) {
    timeline.intervals.push_back(interval_of(run.expansion, i, run.rank, run.times[i], run.origin));
  }
  std::vector<Picoseconds> call_begins;
  for (std::uint32_t first : run.expansion.first_item) {
    const bool has_items = first < run.times.size();
    call_begins.push_back(has_items ? run.times[first].begin - run.origin : Picoseconds());
  }
  timeline.memory.push_back(memory_over_time(*run.expansion.program, run.rank, call_begins));
}

}  // namespace

Simulation simulate(std::span<const Program> programs, const CostModel& costs, Folding folding) {
  INVARIANT(!programs.empty(), "no Program to simulate");
  std::vector<Expansion> expansions;
  for (const Program& program : programs) expansions.push_back(expand(program, costs));
  const Topology topology = resolve_links(expansions, costs);
  const RankChoice choice = choose_ranks(topology, folding);
  const auto expansion_of = [&](std::int64_t rank) -> const Expansion& {
    return expansions[std::size_t(topology.stage[std::size_t(rank)])];
  };

  Channels channels;
  std::vector<std::vector<Item>> items;
  for (std::int64_t rank : choice.representatives) {
    items.push_back(items_of(expansion_of(rank), topology, choice, rank, channels));
  }
  const Engine engine(items, costs.host_executes() ? Execution::host : Execution::streams);
  const SteadyStep step = run_to_steady_state(engine, items.size());

  Simulation simulation;
  simulation.step_time = step.period.seconds();
  for (std::uint32_t c : choice.class_of) {
    simulation.represented_by.push_back(choice.representatives[c]);
  }
  const Picoseconds origin = *std::min_element(step.starts.begin(), step.starts.end());
  Picoseconds longest(-1);
  for (std::size_t c = 0; c < choice.representatives.size(); ++c) {
    const std::int64_t rank = choice.representatives[c];
    const RankRun run{rank, expansion_of(rank), step.result.times[c], origin};
    record(run, simulation.timeline);
    const Account account =
        account_for(run.expansion, topology.links[std::size_t(rank)], topology, run.times);
    simulation.worst = std::max(simulation.worst, account.worst);
    if (account.local > longest) {
      longest = account.local;
      simulation.by_provenance = account.by_provenance;
    }
  }
  sort_intervals(simulation.timeline);
  return simulation;
}

}  // namespace plimsoll
