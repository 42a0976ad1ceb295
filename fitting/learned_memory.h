// Learns from peaks of memory in logs how much more or less the allocator of one's own framework
// holds than its replay.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/calibration/fitted_calibration.h"
#include "plan/memory_interval.h"

namespace plimsoll {

/// A peak of the fullest rank that a log prints, of allocated or of reserved bytes.
struct LoggedPeak {
  MemoryKind kind;
  Bytes measured, predicted;
};

struct LearnedPeaks {
  LearnedMemory memory;
  /// By run: whether its peak lies kContradicts deviations from what the other runs predict, or,
  /// without other runs, from the prediction before. At least two others that contradict a run let
  /// nothing be learned from it.
  std::vector<bool> contradicts;
};

/// Learns from the peaks of runs, and returns nothing without any. Two logarithms are normal: of
/// allocated bytes over those predicted, and of what reserved bytes are off in addition. Their
/// spreads before are those between sources (memory_spread()). Errors of single peaks are larger in
/// most sources, so the middle moves only if several runs agree.
std::optional<LearnedPeaks> learn_memory(std::span<const std::vector<LoggedPeak>> runs);

}  // namespace plimsoll
