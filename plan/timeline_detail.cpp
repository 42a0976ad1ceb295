// Intervals of a timeline are merged, and its memory curves thinned.
#include "plan/timeline_detail.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Intervals of one stream of one rank, by begin.
using Lane = std::vector<const Interval*>;

std::vector<Lane> lanes_of(const Timeline& timeline) {
  std::vector<Lane> lanes;
  std::array<std::size_t, kStreams> lane_of = {};
  std::array<bool, kStreams> known = {};
  const Interval* before = nullptr;
  for (const Interval& interval : timeline.intervals) {
    if (before == nullptr || before->rank != interval.rank) known = {};
    before = &interval;
    const auto stream = std::size_t(interval.stream);
    if (!known[stream]) {
      known[stream] = true;
      lane_of[stream] = lanes.size();
      lanes.emplace_back();
    }
    lanes[lane_of[stream]].push_back(&interval);
  }
  return lanes;
}

/// Calls `use` with each run of a lane that is drawn together, or of one interval.
template <class Use>
void for_each_run(const Lane& lane, Picoseconds resolution, Use use) {
  const auto is_short = [&](const Interval& one) { return one.end - one.begin < resolution; };
  for (std::size_t first = 0; first < lane.size();) {
    std::size_t end = first + 1;
    while (end < lane.size() && is_short(*lane[first]) && is_short(*lane[end]) &&
           lane[end]->end - lane[first]->begin <= resolution &&
           lane[end]->begin >= lane[end - 1]->end) {
      ++end;
    }
    use(std::span(lane).subspan(first, end - first));
    first = end;
  }
}

using Run = std::span<const Interval* const>;

/// Phases of a run, each once, in order of their first interval.
std::vector<Phase> phases_of(Run run) {
  std::vector<Phase> phases;
  for (const Interval* one : run) {
    if (std::find(phases.begin(), phases.end(), one->phase) == phases.end()) {
      phases.push_back(one->phase);
    }
  }
  return phases;
}

std::size_t count_at(const std::vector<Lane>& lanes, Picoseconds resolution) {
  std::size_t count = 0;
  for (const Lane& lane : lanes) {
    for_each_run(lane, resolution, [&](Run run) { count += phases_of(run).size(); });
  }
  return count;
}

/// Merges all intervals of one phase in a run, as if they had run without a pause from `begin` on.
Interval together(Run run, Phase phase, Picoseconds begin) {
  std::optional<Interval> sum;
  Picoseconds busy;
  for (const Interval* one : run) {
    if (one->phase != phase) continue;
    busy += one->end - one->begin;
    if (!sum) {
      sum = *one;
      continue;
    }
    sum->ops += one->ops;
    sum->posted = std::min(sum->posted, one->posted);
    if (sum->kind != one->kind) sum->kind.reset();
    if (sum->routine != one->routine) sum->routine.clear();
    if (sum->layer != one->layer) sum->layer.reset();
    if (sum->micro_batch != one->micro_batch) sum->micro_batch.reset();
  }
  const bool was_posted = sum->posted < sum->begin;
  sum->posted = was_posted ? std::min(sum->posted, begin) : begin;
  sum->begin = begin;
  sum->end = begin + busy;
  return std::move(*sum);
}

std::vector<Interval> drawn_at(const std::vector<Lane>& lanes, Picoseconds resolution) {
  std::vector<Interval> drawn;
  for (const Lane& lane : lanes) {
    for_each_run(lane, resolution, [&](Run run) {
      if (run.size() == 1) {
        drawn.push_back(*run[0]);
        return;
      }
      Picoseconds at = run[0]->begin;
      for (const Phase phase : phases_of(run)) {
        drawn.push_back(together(run, phase, at));
        at = drawn.back().end;
      }
    });
  }
  return drawn;
}

Picoseconds length_of(const Timeline& timeline) {
  Picoseconds begin = timeline.intervals.front().begin, end = begin;
  for (const Interval& interval : timeline.intervals) {
    begin = std::min(begin, interval.begin);
    end = std::max(end, interval.end);
  }
  return end - begin + Picoseconds(1);
}

Bytes total(const MemoryPoint& point) {
  return std::accumulate(point.by_role.begin(), point.by_role.end(), Bytes());
}

}  // namespace

RankTimes times_of(const Timeline& timeline, std::int64_t rank) {
  return {rank, exposed_communication(timeline, rank), time_by_kind(timeline, rank)};
}

std::vector<std::int64_t> ranks_spread(const Timeline& timeline, std::size_t most) {
  INVARIANT(most >= 2, "there are a first and a last rank");
  std::vector<std::int64_t> ranks;
  for (const RankMemory& memory : timeline.memory) ranks.push_back(memory.rank);
  if (ranks.size() <= most) return ranks;
  std::vector<std::int64_t> spread;
  for (std::size_t i = 0; i < most; ++i) {
    spread.push_back(ranks[i * (ranks.size() - 1) / (most - 1)]);
  }
  return spread;
}

Picoseconds draw_together(Timeline& timeline, std::size_t most) {
  if (timeline.intervals.size() <= most) return {};
  const std::vector<Lane> lanes = lanes_of(timeline);
  const Picoseconds length = length_of(timeline);
  // Every fourth level halves the resolution. Bisection finds the finest level that gives few
  // enough intervals. Level 0, which is the length of the timeline, is taken for any number of
  // streams.
  const auto resolution_at = [&](int level) {
    constexpr std::array<double, 4> kQuarters = {1, 0.8408964152537145, 0.7071067811865476,
                                                 0.5946035575013605};  // 2^(-i/4)
    const double part = kQuarters[std::size_t(level % 4)];
    const auto whole = double(length.count() >> (level / 4));
    return level == 0 ? length : Picoseconds(std::max<std::int64_t>(std::int64_t(part * whole), 1));
  };
  int few = 0, many = 96;
  while (many - few > 1) {
    const int level = (few + many) / 2;
    (count_at(lanes, resolution_at(level)) <= most ? few : many) = level;
  }
  const Picoseconds resolution = resolution_at(few);
  timeline.intervals = drawn_at(lanes, resolution);
  sort_intervals(timeline);
  return resolution;
}

void thin_curves(Timeline& timeline, std::size_t most) {
  for (RankMemory& memory : timeline.memory) {
    std::vector<MemoryPoint>& curve = memory.curve;
    if (curve.size() <= most) continue;
    const Picoseconds begin = curve.front().time;
    INVARIANT(most >= 2, "a curve has two ends");
    const double length = double((curve.back().time - begin).count()) + 1;
    const auto part_of = [&](const MemoryPoint& point) {
      return std::size_t(double((point.time - begin).count()) / length * double(most - 1));
    };
    std::vector<MemoryPoint> kept;
    std::size_t part = 0;
    for (const MemoryPoint& point : curve) {
      const bool same_part = !kept.empty() && part_of(point) == part;
      part = part_of(point);
      if (!same_part) {
        kept.push_back(point);
      } else if (total(point) > total(kept.back())) {
        kept.back() = point;
      }
    }
    if (kept.back() != curve.back()) kept.push_back(curve.back());
    curve = std::move(kept);
  }
}

}  // namespace plimsoll
