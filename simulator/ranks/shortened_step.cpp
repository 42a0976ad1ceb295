#include "simulator/ranks/shortened_step.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace plimsoll {
namespace {

using Event = StreamEngine::Event;
using CycleBegin = StreamRanks::CycleBegin;

/// Cycles are at least one call in so many of a step of few micro-batches.
constexpr std::size_t kLeastShareOfFew = 8;
/// Cycles that all ranks must repeat one after the other: communications last less than one each,
/// so that after three none is under way that began before; two more show the rhythm.
constexpr std::int64_t kCyclesSeen = 5;

/// Cycles of so many micro-batches, by expansion, and the fewest of any.
struct Cycles {
  std::vector<LeftOut> of;
  std::size_t fewest = std::numeric_limits<std::size_t>::max(), kept = 0;
};

/// Nothing where the calls of some Program are not mostly cycles, or end with one.
std::optional<Cycles> find_cycles(std::span<const Expansion> expansions, std::int64_t micro_batches,
                                  std::size_t least_share) {
  Cycles found;
  found.of.resize(expansions.size());
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    if (expansions[e].program == nullptr) continue;
    const Program& program = *expansions[e].program;
    found.kept = std::size_t(cycles_shown(program.grid[Axis::pp]));
    const CallCycles& cycles = found.of[e].cycles = call_cycles(program, micro_batches);
    if (least_share * cycles.count * cycles.length < program.calls.size()) return std::nullopt;
    if (cycles.end() == program.calls.size()) return std::nullopt;
    found.fewest = std::min(found.fewest, cycles.count);
  }
  return found;
}

/// The cycles that can be left out when cycles are of so many micro-batches; nothing: less than
/// half.
std::optional<std::vector<LeftOut>> cycles_to_leave_out(std::span<const Expansion> expansions,
                                                        std::int64_t micro_batches) {
  std::optional<Cycles> found = find_cycles(expansions, micro_batches, 2);
  if (!found || found->fewest < 3 * found->kept) return std::nullopt;
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    if (expansions[e].program == nullptr) continue;
    LeftOut& out = found->of[e];
    out.from = out.cycles.first + found->kept / 2 * out.cycles.length;
    out.to = out.from + (found->fewest - found->kept) * out.cycles.length;
  }
  return std::move(found->of);
}

/// Where so many cycles of so many micro-batches are to be added; nothing: there are too few to
/// show the rhythm.
std::optional<std::vector<LeftOut>> cycles_to_add(std::span<const Expansion> expansions,
                                                  const FewerMicroBatches& fewer) {
  std::optional<Cycles> found =
      find_cycles(expansions, fewer.micro_batches_per_cycle, kLeastShareOfFew);
  if (!found || found->fewest < found->kept) return std::nullopt;
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    if (expansions[e].program == nullptr) continue;
    LeftOut& out = found->of[e];
    out.from = out.to = out.cycles.first + out.cycles.count / 2 * out.cycles.length;
    out.absent = std::size_t(fewer.cycles_left_out);
  }
  return std::move(found->of);
}

/// Whether all that calls after the cycles wait for is there.
bool nothing_is_missing(const Program& program, const LeftOut& left_out) {
  for (std::size_t c = left_out.cycles.end(); c < program.calls.size(); ++c) {
    for (const Wait& wait : program.calls[c].waits) {
      if (left_out.awaited(c, wait.call) == LeftOut::kNothing) return false;
    }
  }
  return true;
}

/// The events of one rank in some cycles that follow each other.
class CycleEvents {
 public:
  CycleEvents(std::span<const Picoseconds> fired, const std::vector<CycleBegin>& begins)
      : fired_(fired), begins_(begins) {}

  std::size_t count() const { return begins_.size() - 1; }
  std::span<const Picoseconds> of(std::size_t cycle) const {
    const Event from = begins_[cycle].event, to = begins_[cycle + 1].event;
    return fired_.subspan(from, to - from);
  }
  /// Every event of the next cycle is so much later than that of this one.
  bool is_followed(std::size_t cycle, Picoseconds later) const {
    const auto one = of(cycle), next = of(cycle + 1);
    return std::equal(one.begin(), one.end(), next.begin(), next.end(),
                      [&](Picoseconds a, Picoseconds b) { return a + later == b; });
  }

 private:
  std::span<const Picoseconds> fired_;
  const std::vector<CycleBegin>& begins_;
};

/// All that happens on a rank strictly after `from` and before `to` are cycles that follow each
/// other in the rhythm.
struct Span {
  Picoseconds from{-1}, to{std::numeric_limits<std::int64_t>::max()};

  void begin_after(std::span<const Picoseconds> events) {
    for (const Picoseconds time : events) from = std::max(from, time);
  }
  void end_before(std::span<const Picoseconds> events) {
    for (const Picoseconds time : events) to = std::min(to, time);
  }
};

/// Finds the longest row of cycles that follow each other in the rhythm. `own`: all events of the
/// rank; those before its cycles begin at its first one.
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
  // Nor has anything happened a cycle before the first of them, or will a cycle after the last.
  for (const Picoseconds time : cycles.of(best)) span.from = std::max(span.from, time - period);
  for (const Picoseconds time : cycles.of(best + most)) span.to = std::min(span.to, time + period);
  return span;
}

/// Whether the host issues a cycle in no longer than `period`, or anew from each one's own events.
bool host_keeps_up(const std::vector<CycleBegin>& begins, Picoseconds period) {
  for (std::size_t c = 0; c + 1 < begins.size(); ++c) {
    const StreamEngine::HostTime &one = begins[c].host, &next = begins[c + 1].host;
    if (one.since == next.since && next.issued - one.issued > period) return false;
  }
  return true;
}

}  // namespace

std::optional<ShortenedStep> ShortenedStep::of(std::span<const Expansion> expansions,
                                               const LinkTopology& topology,
                                               const RankChoice& choice) {
  const auto first = std::find_if(expansions.begin(), expansions.end(),
                                  [](const Expansion& e) { return e.program != nullptr; });
  auto left_out = cycles_to_leave_out(expansions, 1);
  const std::int64_t stages = first->program->grid[Axis::pp];
  if (!left_out && first->chunks) left_out = cycles_to_leave_out(expansions, stages);
  return of(expansions, topology, choice, left_out);
}

std::optional<ShortenedStep> ShortenedStep::of(std::span<const Expansion> expansions,
                                               const LinkTopology& topology,
                                               const RankChoice& choice,
                                               const FewerMicroBatches& fewer) {
  return of(expansions, topology, choice, cycles_to_add(expansions, fewer));
}

std::optional<ShortenedStep> ShortenedStep::of(
    std::span<const Expansion> expansions, const LinkTopology& topology, const RankChoice& choice,
    const std::optional<std::vector<LeftOut>>& left_out) {
  if (!left_out) return std::nullopt;
  for (std::size_t e = 0; e < expansions.size(); ++e) {
    const Program* program = expansions[e].program;
    if (program != nullptr && !nothing_is_missing(*program, (*left_out)[e])) return std::nullopt;
  }
  ShortenedStep step(expansions, topology, choice, *left_out);
  if (!step.ranks_.may_be_shortened()) return std::nullopt;
  return step;
}

ShortenedStep::ShortenedStep(std::span<const Expansion> expansions, const LinkTopology& topology,
                             const RankChoice& choice, std::span<const LeftOut> left_out)
    : ranks_(expansions, topology, choice, left_out) {
  for (std::size_t c = 0; c < choice.representatives.size(); ++c) {
    cycles_from_.push_back(ranks_.cycle_begins(c).front().event);
  }
  const LeftOut& any = left_out[topology.expansion[std::size_t(choice.representatives[0])]];
  cycles_ = any.left_out_cycles();
}

std::optional<std::vector<Picoseconds>> ShortenedStep::run(std::span<const Picoseconds> starts) {
  const StreamEngine::Result* result = ranks_.engine().try_run(starts, cycles_from_);
  if (result == nullptr) return std::nullopt;
  const std::span<const Picoseconds> fired = result->fired;
  const CycleEvents first(fired, ranks_.cycle_begins(0));
  const std::size_t late = first.count() * 2 / 3;
  if (first.of(late).empty() || first.of(late).size() != first.of(late + 1).size()) {
    return std::nullopt;
  }
  const Picoseconds period = first.of(late + 1).front() - first.of(late).front();
  if (period <= Picoseconds(0)) return std::nullopt;
  Span span;
  span.from = result->held_up_until;
  Event begin = 0;
  for (std::size_t c = 0; c < starts.size(); ++c) {
    const std::vector<CycleBegin>& begins = ranks_.cycle_begins(c);
    const Event end = ranks_.first_event_after(c);
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
    ends.push_back(end + Picoseconds(std::int64_t(cycles_) * period.count()));
  }
  return ends;
}

}  // namespace plimsoll
