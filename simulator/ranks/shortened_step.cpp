// Finds cycles to skip, and proves on a run without them that the step repeats.
#include "simulator/ranks/shortened_step.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace plimsoll {
namespace {

using Event = StreamEngine::Event;
using CycleBegin = StreamRank::CycleBegin;

/// In a step of few micro-batches, at least one call in this many belongs to a cycle.
constexpr std::size_t kLeastShareOfFew = 8;
/// Cycles that all ranks must repeat one after the other. A communication lasts less than a cycle,
/// so that after three cycles none is under way that began before; two more show the rhythm.
constexpr std::int64_t kCyclesSeen = 5;

/// The cycles of every expansion, the fewest of any, and how many of them stay.
struct Cycles {
  std::vector<SkippedCalls> of;
  std::size_t fewest = std::numeric_limits<std::size_t>::max(), kept = 0;
};

/// Nothing where less than one call in `least_share` of some Program is in a cycle, or where the
/// Program ends with a cycle.
std::optional<Cycles> find_cycles(std::span<const Expansion> expansions, std::int64_t micro_batches,
                                  std::size_t least_share) {
  Cycles cycles;
  cycles.of.resize(expansions.size());
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    if (expansions[e].program == nullptr) continue;
    const Program& program = *expansions[e].program;
    cycles.kept = std::size_t(cycles_shown(program.grid[Axis::pp]));
    const CallCycles& own = cycles.of[e].cycles = call_cycles(program, micro_batches);
    if (least_share * own.count * own.length < program.calls.size()) return std::nullopt;
    if (own.end() == program.calls.size()) return std::nullopt;
    cycles.fewest = std::min(cycles.fewest, own.count);
  }
  return cycles;
}

/// The cycles that can be skipped where a cycle has `micro_batches`. Nothing where less than half
/// of the calls could be.
std::optional<std::vector<SkippedCalls>> cycles_to_skip(std::span<const Expansion> expansions,
                                                        std::int64_t micro_batches) {
  std::optional<Cycles> cycles = find_cycles(expansions, micro_batches, 2);
  if (!cycles || cycles->fewest < 3 * cycles->kept) return std::nullopt;
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    if (expansions[e].program == nullptr) continue;
    SkippedCalls& skipped = cycles->of[e];
    skipped.from = skipped.cycles.first + cycles->kept / 2 * skipped.cycles.length;
    skipped.to = skipped.from + (cycles->fewest - cycles->kept) * skipped.cycles.length;
  }
  return std::move(cycles->of);
}

/// The place where the missing cycles belong. Nothing where too few cycles are there to show the
/// rhythm.
std::optional<std::vector<SkippedCalls>> cycles_to_add(std::span<const Expansion> expansions,
                                                       const FewerMicroBatches& fewer) {
  std::optional<Cycles> cycles =
      find_cycles(expansions, fewer.micro_batches_per_cycle, kLeastShareOfFew);
  if (!cycles || cycles->fewest < cycles->kept) return std::nullopt;
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    if (expansions[e].program == nullptr) continue;
    SkippedCalls& skipped = cycles->of[e];
    skipped.from = skipped.to =
        skipped.cycles.first + skipped.cycles.count / 2 * skipped.cycles.length;
    skipped.missing = std::size_t(fewer.cycles_left_out);
  }
  return std::move(cycles->of);
}

/// Whether calls behind the cycles wait for no call that is skipped.
bool nothing_is_missing(const Program& program, const SkippedCalls& skipped) {
  for (std::size_t c = skipped.cycles.end(); c < program.calls.size(); ++c) {
    for (const Wait& wait : program.calls[c].waits) {
      if (skipped.awaited(c, wait.call) == SkippedCalls::kNothing) return false;
    }
  }
  return true;
}

/// The events of one rank, cycle by cycle.
class CycleEvents {
 public:
  CycleEvents(std::span<const Picoseconds> fired, const std::vector<CycleBegin>& begins)
      : fired_(fired), begins_(begins) {}

  std::size_t count() const { return begins_.size() - 1; }
  std::span<const Picoseconds> of(std::size_t cycle) const {
    const Event from = begins_[cycle].event, to = begins_[cycle + 1].event;
    return fired_.subspan(from, to - from);
  }
  /// Whether every event of the next cycle is this much later than the same event of this cycle.
  bool is_followed(std::size_t cycle, Picoseconds later) const {
    const auto one = of(cycle), next = of(cycle + 1);
    return std::equal(one.begin(), one.end(), next.begin(), next.end(),
                      [&](Picoseconds a, Picoseconds b) { return a + later == b; });
  }

 private:
  std::span<const Picoseconds> fired_;
  const std::vector<CycleBegin>& begins_;
};

/// Everything that happens on a rank strictly after `from` and before `to` belongs to cycles that
/// follow each other in the rhythm.
struct Span {
  Picoseconds from, to{std::numeric_limits<std::int64_t>::max()};

  void begin_after(std::span<const Picoseconds> events) {
    for (const Picoseconds time : events) from = std::max(from, time);
  }
  void end_before(std::span<const Picoseconds> events) {
    for (const Picoseconds time : events) to = std::min(to, time);
  }
};

/// Finds the longest row of cycles that follow each other in the rhythm. `before` and `after` are
/// the rank's events outside its cycles.
Span rhythmic_span(const CycleEvents& cycles, std::span<const Picoseconds> before,
                   std::span<const Picoseconds> after, Picoseconds period) {
  std::size_t best = 0, most = 0;
  for (std::size_t c = 0; c + 1 < cycles.count();) {
    std::size_t end = c;
    while (end + 1 < cycles.count() && cycles.is_followed(end, period)) ++end;
    if (end - c > most) best = c, most = end - c;
    c = std::max(end, c + 1);
  }
  Span span;
  span.begin_after(before);
  span.end_before(after);
  for (std::size_t c = 0; c < best; ++c) span.begin_after(cycles.of(c));
  for (std::size_t c = best + most + 1; c < cycles.count(); ++c) span.end_before(cycles.of(c));
  // The span ends a period before the first of these cycles, and a period after the last.
  for (const Picoseconds time : cycles.of(best)) span.from = std::max(span.from, time - period);
  for (const Picoseconds time : cycles.of(best + most)) span.to = std::min(span.to, time + period);
  return span;
}

/// Whether the host issues each cycle within `period`, or begins anew from an event of the cycle.
bool host_keeps_up(const std::vector<CycleBegin>& begins, Picoseconds period) {
  for (std::size_t c = 0; c + 1 < begins.size(); ++c) {
    const StreamEngine::HostTime &one = begins[c].host, &next = begins[c + 1].host;
    if (one.after == next.after && next.issued - one.issued > period) return false;
  }
  return true;
}

}  // namespace

std::optional<ShortenedStep> ShortenedStep::of(std::span<const Expansion> expansions,
                                               const RankTopology& topology,
                                               const RankChoice& choice) {
  const auto first = std::find_if(expansions.begin(), expansions.end(),
                                  [](const Expansion& e) { return e.program != nullptr; });
  auto skipped = cycles_to_skip(expansions, 1);
  const std::int64_t stages = first->program->grid[Axis::pp];
  if (!skipped && first->chunks) skipped = cycles_to_skip(expansions, stages);
  return of(expansions, topology, choice, skipped);
}

std::optional<ShortenedStep> ShortenedStep::of(std::span<const Expansion> expansions,
                                               const RankTopology& topology,
                                               const RankChoice& choice,
                                               const FewerMicroBatches& fewer) {
  return of(expansions, topology, choice, cycles_to_add(expansions, fewer));
}

std::optional<ShortenedStep> ShortenedStep::of(
    std::span<const Expansion> expansions, const RankTopology& topology, const RankChoice& choice,
    const std::optional<std::vector<SkippedCalls>>& skipped) {
  if (!skipped) return std::nullopt;
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    const Program* program = expansions[e].program;
    if (program != nullptr && !nothing_is_missing(*program, (*skipped)[e])) return std::nullopt;
  }
  StreamRanks all = build_stream_ranks(expansions, topology, choice, *skipped);
  if (!all.may_be_shortened) return std::nullopt;
  const std::size_t skipped_cycles = all.ranks.front().skipped.cycle_count();
  return ShortenedStep(std::move(all), skipped_cycles);
}

ShortenedStep::ShortenedStep(StreamRanks all, std::size_t skipped_cycles)
    : all_(std::move(all)), skipped_cycles_(skipped_cycles) {
  for (const StreamRank& rank : all_.ranks) cycles_from_.push_back(rank.cycles.front().event);
}

std::optional<std::vector<Picoseconds>> ShortenedStep::run(std::span<const Picoseconds> starts) {
  const StreamEngine::Result* result = all_.engine.try_run(starts, cycles_from_);
  if (result == nullptr) return std::nullopt;
  const std::span<const Picoseconds> fired = result->fired;
  const CycleEvents first(fired, all_.ranks[0].cycles);
  const std::size_t late = first.count() * 2 / 3;
  if (first.of(late).empty() || first.of(late).size() != first.of(late + 1).size()) {
    return std::nullopt;
  }
  const Picoseconds period = first.of(late + 1).front() - first.of(late).front();
  if (period <= Picoseconds(0)) return std::nullopt;
  Span span;
  span.from = result->host_bound_until;
  Event begin = 0;
  for (std::size_t c = 0; c < starts.size(); ++c) {
    const std::vector<CycleBegin>& begins = all_.ranks[c].cycles;
    const Event end = all_.ranks[c].events_end;
    const Span own =
        rhythmic_span({fired, begins}, fired.subspan(begin, begins.front().event - begin),
                      fired.subspan(begins.back().event, end - begins.back().event), period);
    begin = end;
    span.from = std::max(span.from, own.from);
    span.to = std::min(span.to, own.to);
    if (!host_keeps_up(begins, period) || result->host_end[c] >= result->rank_end[c]) {
      return std::nullopt;
    }
  }
  if (span.to - span.from <= Picoseconds(kCyclesSeen * period.count())) return std::nullopt;
  std::vector<Picoseconds> ends;
  for (const Picoseconds end : result->rank_end) {
    ends.push_back(end + Picoseconds(std::int64_t(skipped_cycles_) * period.count()));
  }
  return ends;
}

}  // namespace plimsoll
