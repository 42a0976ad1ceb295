// Rules: the predicted timeline could have happened, and shows the memory that was predicted.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "graph/op_table.h"
#include "passes/strategy/sharding_rules.h"
#include "plan/check_rules.h"

namespace plimsoll {
namespace {

std::string name_of(const Interval& interval) {
  return fmt::format("rank {} {} {} of {} at {} ps", interval.rank, to_text(interval.stream),
                     interval.kind ? to_text(*interval.kind) : "call", interval.routine,
                     interval.begin.count());
}

/// The class of a rank; absent for ranks the plan does not have.
std::optional<std::size_t> class_of_rank(const Plan& plan, std::int64_t rank) {
  if (rank < 0 || rank >= grid_of(plan.strategy).world_size()) return std::nullopt;
  return class_of_rank(plan.strategy, rank);
}

Finding timeline_ranks(const CheckContext& context) {
  if (context.programs.empty()) return std::nullopt;
  const Plan& plan = context.plan;
  std::set<std::int64_t> known;
  std::set<std::size_t> stages;
  for (const RankMemory& memory : plan.timeline.memory) {
    const auto stage = class_of_rank(plan, memory.rank);
    if (!stage) return fmt::format("memory of rank {} of {}", memory.rank, plan.devices);
    if (!known.insert(memory.rank).second) return fmt::format("rank {} appears twice", memory.rank);
    stages.insert(*stage);
  }
  if (std::int64_t(stages.size()) != rank_classes(plan.strategy)) {
    return fmt::format("ranks of {} classes are shown, the strategy has {}", stages.size(),
                       rank_classes(plan.strategy));
  }
  for (const Interval& interval : plan.timeline.intervals) {
    if (!known.contains(interval.rank)) return name_of(interval) + ": the rank has no memory curve";
  }
  return std::nullopt;
}

Finding timeline_ordered(const CheckContext& context) {
  const auto key = [](const Interval& i) { return std::tuple(i.rank, i.begin, i.stream, i.end); };
  const auto& intervals = context.plan.timeline.intervals;
  const auto at =
      std::adjacent_find(intervals.begin(), intervals.end(),
                         [&](const Interval& a, const Interval& b) { return key(b) < key(a); });
  if (at == intervals.end()) return std::nullopt;
  return name_of(*(at + 1)) + " stands after " + name_of(*at);
}

Finding intervals_forward(const CheckContext& context) {
  for (const Interval& interval : context.plan.timeline.intervals) {
    if (interval.end < interval.begin) {
      return fmt::format("{} ends at {} ps, before it begins", name_of(interval),
                         interval.end.count());
    }
  }
  return std::nullopt;
}

Finding timeline_from_zero(const CheckContext& context) {
  const Timeline& timeline = context.plan.timeline;
  for (const Interval& interval : timeline.intervals) {
    if (std::min(interval.posted, interval.begin) >= Picoseconds()) continue;
    return fmt::format("{} was posted at {} ps; the step begins at 0", name_of(interval),
                       interval.posted.count());
  }
  for (const RankMemory& memory : timeline.memory) {
    for (const MemoryPoint& point : memory.curve) {
      if (point.time >= Picoseconds()) continue;
      return fmt::format("rank {}: a memory curve from {} ps; the step begins at 0", memory.rank,
                         point.time.count());
    }
  }
  return std::nullopt;
}

/// The parts of a Program that a rank shows: its calls, or the ops of them all.
std::size_t issued(const Program& program, bool calls) {
  std::size_t ops = 0;
  for (const Call& call : program.calls) ops += program.at(call.routine).ops.size();
  return calls ? program.calls.size() : ops;
}

Finding timeline_level(const CheckContext& context) {
  const Plan& plan = context.plan;
  for (const Interval& interval : plan.timeline.intervals) {
    const auto stage = class_of_rank(plan, interval.rank);
    if (!stage || *stage >= context.programs.size() || interval.ops > 1) continue;
    const auto& routines = context.programs[*stage].routines;
    const auto routine = std::find_if(routines.begin(), routines.end(), [&](const Routine& known) {
      return known.name == interval.routine;
    });
    if (routine == routines.end()) continue;  // timeline-routines says so
    const bool call = shows_calls(plan.devices) && routine->ops.size() > 1;
    if (call != !interval.kind) {
      return fmt::format("{}: {} devices show {}", name_of(interval), plan.devices,
                         shows_calls(plan.devices) ? "whole calls" : "every op");
    }
  }
  return std::nullopt;
}

Finding timeline_complete(const CheckContext& context) {
  const Plan& plan = context.plan;
  const bool together = plan.timeline_resolution > Picoseconds();
  const std::vector<std::int64_t> kept =
      ranks_spread(plan.timeline, together ? kMostRanksInDetail
                                           : std::max<std::size_t>(plan.timeline.memory.size(), 2));
  std::map<std::int64_t, std::size_t> shown;
  for (const Interval& interval : plan.timeline.intervals) {
    shown[interval.rank] += std::size_t(interval.ops);
  }
  for (const RankMemory& memory : plan.timeline.memory) {
    const auto stage = class_of_rank(plan, memory.rank);
    if (!stage || *stage >= context.programs.size()) continue;
    const bool calls = shows_calls(plan.devices);
    const std::size_t all = issued(context.programs[*stage], calls);
    const std::size_t found = shown[memory.rank];
    const bool in_detail = std::binary_search(kept.begin(), kept.end(), memory.rank);
    if (found == (in_detail ? all : 0)) continue;
    if (!in_detail) return fmt::format("rank {} is not one that is shown in detail", memory.rank);
    return fmt::format("rank {} shows {} {}, its program issues {}", memory.rank, found,
                       calls ? "calls" : "ops", all);
  }
  return std::nullopt;
}

Finding communication_posted(const CheckContext& context) {
  for (const Interval& interval : context.plan.timeline.intervals) {
    // Several kinds are drawn together of one stream, which is all compute or all communication.
    const bool communication =
        interval.kind ? communicates(*interval.kind) : interval.stream != Stream::compute;
    if (communication ? interval.posted <= interval.begin : interval.posted == interval.begin)
      continue;
    return fmt::format("{} was posted at {} ps; {}", name_of(interval), interval.posted.count(),
                       communication ? "it begins when the last participant has posted, not before"
                                     : "only communication is posted before it begins");
  }
  return std::nullopt;
}

Finding compute_in_turn(const CheckContext& context) {
  std::map<std::int64_t, const Interval*> latest;  // by rank: the one that ends last so far
  for (const Interval& interval : context.plan.timeline.intervals) {
    if (interval.stream != Stream::compute) continue;
    const Interval*& before = latest[interval.rank];
    if (before != nullptr && interval.begin < before->end) {
      return name_of(interval) + " begins before the end of " + name_of(*before);
    }
    if (before == nullptr || interval.end > before->end) before = &interval;
  }
  return std::nullopt;
}

Finding compute_fits_step(const CheckContext& context) {
  std::map<std::int64_t, Picoseconds> busy;
  for (const Interval& interval : context.plan.timeline.intervals) {
    if (interval.stream == Stream::compute) busy[interval.rank] += interval.end - interval.begin;
  }
  const double step = context.plan.prediction.step_time.value();
  for (const auto& [rank, time] : busy) {
    if (time.seconds().value() > step * (1 + 1e-9) + 1e-11) {
      return fmt::format("rank {} computes for {} s in a step of {} s", rank,
                         time.seconds().value(), step);
    }
  }
  return std::nullopt;
}

Finding timeline_routines(const CheckContext& context) {
  std::vector<std::set<std::string_view>> routines;
  for (const Program& program : context.programs) {
    auto& names = routines.emplace_back();
    for (const Routine& routine : program.routines) names.insert(routine.name);
  }
  for (const Interval& interval : context.plan.timeline.intervals) {
    const auto stage = class_of_rank(context.plan, interval.rank);
    if (!stage || *stage >= routines.size()) continue;
    if (interval.ops > 1 && interval.routine.empty()) continue;  // of several
    if (!routines[*stage].contains(interval.routine)) {
      return fmt::format("{}: the program of stage {} has no such routine", name_of(interval),
                         *stage);
    }
  }
  return std::nullopt;
}

Finding timeline_memory(const CheckContext& context) {
  const auto& stages = context.plan.prediction.stages;
  for (const RankMemory& memory : context.plan.timeline.memory) {
    const auto stage = class_of_rank(context.plan, memory.rank);
    if (!stage || *stage >= stages.size()) continue;
    const StagePrediction& stated = stages[*stage];
    if (memory.peak != stated.peak || memory.by_role != stated.by_role ||
        memory.arena != stated.arena) {
      return fmt::format(
          "rank {}: peak {} and arena {} bytes in the timeline, {} and {} for its "
          "stage, or a class differs",
          memory.rank, memory.peak.count(), memory.arena.count(), stated.peak.count(),
          stated.arena.count());
    }
  }
  return std::nullopt;
}

Finding memory_curve(const CheckContext& context) {
  for (const RankMemory& memory : context.plan.timeline.memory) {
    Bytes most;
    for (std::size_t i = 0; i < memory.curve.size(); ++i) {
      const MemoryPoint& point = memory.curve[i];
      if (i > 0 && point.time < memory.curve[i - 1].time) {
        return fmt::format("rank {}: the memory curve goes back to {} ps", memory.rank,
                           point.time.count());
      }
      most = std::max(most, std::accumulate(point.by_role.begin(), point.by_role.end(), Bytes()));
    }
    if (most != memory.peak) {
      return fmt::format("rank {}: the memory curve reaches {} bytes, the peak is {}", memory.rank,
                         most.count(), memory.peak.count());
    }
  }
  return std::nullopt;
}

Finding timeline_resolution(const CheckContext& context) {
  const Plan& plan = context.plan;
  Picoseconds begin = kLongestTimeline, end;
  for (const Interval& interval : plan.timeline.intervals) {
    begin = std::min(begin, interval.begin);
    end = std::max(end, interval.end);
    if (interval.ops > 1 && interval.end - interval.begin > plan.timeline_resolution) {
      return fmt::format("{}: {} ops drawn together last {} ps, the resolution is {} ps",
                         name_of(interval), interval.ops, (interval.end - interval.begin).count(),
                         plan.timeline_resolution.count());
    }
  }
  // However coarse, each stream of a rank has an interval.
  const std::size_t count = plan.timeline.intervals.size();
  if (count > kMostIntervals && plan.timeline_resolution <= end - begin) {
    return fmt::format("{} intervals, at most {} are kept", count, kMostIntervals);
  }
  return std::nullopt;
}

Finding rank_times(const CheckContext& context) {
  const Plan& plan = context.plan;
  const bool wanted = plan.timeline_resolution > Picoseconds() && runs_here(plan.framework);
  const auto& memory = plan.timeline.memory;
  if (plan.rank_times.size() != (wanted ? memory.size() : 0)) {
    return fmt::format("times of {} ranks, {} are due", plan.rank_times.size(),
                       wanted ? memory.size() : 0);
  }
  for (std::size_t i = 0; i < plan.rank_times.size(); ++i) {
    const RankTimes& times = plan.rank_times[i];
    if (times.rank != memory[i].rank) {
      return fmt::format("times of rank {} stand where rank {} is due", times.rank, memory[i].rank);
    }
    if (shows_calls(plan.devices)) continue;  // what calls take is of no kind
    Picoseconds shown, stated;
    const bool in_detail =
        std::any_of(plan.timeline.intervals.begin(), plan.timeline.intervals.end(),
                    [&](const Interval& interval) { return interval.rank == times.rank; });
    if (!in_detail) continue;
    for (const Interval& interval : plan.timeline.intervals) {
      if (interval.rank == times.rank) shown += interval.end - interval.begin;
    }
    for (const Picoseconds time : times.by_kind) stated += time;
    if (shown == stated) continue;
    return fmt::format("ops of rank {} take {} ps by kind, {} ps in the timeline", times.rank,
                       stated.count(), shown.count());
  }
  return std::nullopt;
}

constexpr CheckRule kTimelineRules[] = {
    {{"timeline-ranks", "The timeline shows known ranks, each once, of every stage."},
     timeline_ranks},
    {{"timeline-ordered", "Intervals are ordered by rank, begin, stream and end."},
     timeline_ordered},
    {{"intervals-forward", "No interval ends before it begins."}, intervals_forward},
    {{"timeline-from-zero", "Nothing happens before the step begins, at 0."}, timeline_from_zero},
    {{"timeline-level", "Up to 8 devices show every op, more show whole calls."}, timeline_level},
    {{"timeline-complete",
      "Every rank in detail shows each op or call it issues once, by itself or drawn together."},
     timeline_complete},
    {{"communication-posted", "Communication begins once posted, other ops when they are posted."},
     communication_posted},
    {{"compute-in-turn", "A rank's compute stream runs one op or call at a time."},
     compute_in_turn},
    {{"compute-fits-step", "No rank computes for longer than the step takes."}, compute_fits_step},
    {{"timeline-routines", "Every interval belongs to a routine of its rank's program."},
     timeline_routines},
    {{"timeline-memory", "A rank's memory is that of its stage."}, timeline_memory},
    {{"memory-curve", "A memory curve runs forward in time and its highest point is the peak."},
     memory_curve},
    {{"timeline-resolution",
      "The timeline has few intervals, and none drawn together is longer than its resolution."},
     timeline_resolution},
    {{"rank-times",
      "A merged timeline keeps times by kind if the plan can be run, and they add up."},
     rank_times},
};

}  // namespace

std::span<const CheckRule> timeline_rules() { return kTimelineRules; }

}  // namespace plimsoll
