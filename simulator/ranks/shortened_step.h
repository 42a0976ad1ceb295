// Shortened step: the time of a step of many micro-batches from a run of a few. Where all ranks
// repeat themselves, micro-batch by micro-batch, the time of each skipped cycle is added.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "simulator/ranks/build_stream_ranks.h"
#include "simulator/ranks/fewer_micro_batches.h"

namespace plimsoll {

/// Skips equally many cycles of calls (call_cycles.h) on every rank, and runs the rest. The result
/// is exact, or there is none. The run must show an instant from which on everything that happens
/// on any rank happens again one cycle later, transfers under way included. The whole step is then
/// this run with more cycles inserted at that instant, for two reasons:
///  - Every time follows from earlier ones (stream_engine.h). At that instant no time depends on
///    the run's first cycles any more, and equal communications share links equally.
///  - After that instant no op waits for its host to issue it. Hosts issue a cycle in no longer
///    than the cycle lasts, so more cycles do not make them later.
class ShortenedStep {
 public:
  /// Makes a shortened step of whole Programs. Returns nothing where less than half of the calls
  /// could be skipped. Arguments are those of build_stream_ranks.
  static std::optional<ShortenedStep> of(std::span<const Expansion> expansions,
                                         const RankTopology& topology, const RankChoice& choice);
  /// Makes a shortened step of Programs of fewer micro-batches, which lack the cycles that `fewer`
  /// counts. Returns nothing where they have too few cycles to show how the step repeats.
  static std::optional<ShortenedStep> of(std::span<const Expansion> expansions,
                                         const RankTopology& topology, const RankChoice& choice,
                                         const FewerMicroBatches& fewer);

  /// Makes a shortened step of ranks that are laid out without some cycles.
  ShortenedStep(StreamRanks all, std::size_t skipped_cycles);

  /// Returns when each simulated rank has finished the whole step; nothing where the run does not
  /// show that it repeats.
  std::optional<std::vector<Picoseconds>> run(std::span<const Picoseconds> starts);

 private:
  static std::optional<ShortenedStep> of(std::span<const Expansion> expansions,
                                         const RankTopology& topology, const RankChoice& choice,
                                         const std::optional<std::vector<SkippedCalls>>& skipped);

  StreamRanks all_;
  std::vector<StreamEngine::Event> cycles_from_;  ///< by simulated rank: its cycles' first event
  std::size_t skipped_cycles_ = 0;
};

}  // namespace plimsoll
