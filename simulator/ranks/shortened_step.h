// A step of many micro-batches from a run of few: where all ranks repeat themselves, micro-batch by
// micro-batch, how long one of these takes is added for those that were left out.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "simulator/ranks/fewer_micro_batches.h"
#include "simulator/ranks/stream_ranks.h"

namespace plimsoll {

/// Leaves out as many cycles of calls (call_cycles.h) on every rank, and runs the rest. Exact, or
/// nothing: the run must show that there is an instant from which on all that happens on any rank,
/// transfers under way included, happens again a cycle later. Then the whole step is this one with
/// so many cycles more at that instant, because
///  - every time follows from earlier ones (stream_engine.h), none of them in the run's first
///    cycles by then, and equal communications share links equally;
///  - what the host issues is late for nothing after that instant, and hosts issue a cycle in no
///    longer than it takes: with more cycles before it they are no later.
class ShortenedStep {
 public:
  /// Nothing where less than half of the calls could be left out. Arguments as StreamRanks'.
  static std::optional<ShortenedStep> of(std::span<const Expansion> expansions,
                                         const LinkTopology& topology, const RankChoice& choice);
  /// Makes one for Programs that lack these cycles; nothing where the others are too few to show
  /// it.
  static std::optional<ShortenedStep> of(std::span<const Expansion> expansions,
                                         const LinkTopology& topology, const RankChoice& choice,
                                         const FewerMicroBatches& fewer);

  /// When each simulated rank has finished the whole step; nothing where the run does not show it.
  std::optional<std::vector<Picoseconds>> run(std::span<const Picoseconds> starts);

 private:
  static std::optional<ShortenedStep> of(std::span<const Expansion> expansions,
                                         const LinkTopology& topology, const RankChoice& choice,
                                         const std::optional<std::vector<LeftOut>>& left_out);
  ShortenedStep(std::span<const Expansion> expansions, const LinkTopology& topology,
                const RankChoice& choice, std::span<const LeftOut> left_out);

  StreamRanks ranks_;
  std::vector<StreamEngine::Event> cycles_from_;  ///< by simulated rank: first event of a cycle
  std::size_t cycles_ = 0;                        ///< left out
};

}  // namespace plimsoll
