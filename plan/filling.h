// Filling: how full a device is, by the bytes that decide whether a strategy fits. Every text, JSON
// and page takes its numbers from here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll {

struct Filling {
  Bytes reserved;  ///< by the framework's allocator, of the bundled runtime: its arena
  Bytes outside;   ///< context and communicators: memory_outside_program
  Bytes reserve;   ///< kept free, as --reserve asked
  Bytes capacity;
  /// The bytes that the device's driver would report as taken.
  Bytes taken() const { return reserved + outside; }
  /// The bytes that the allocator may reserve at most.
  Bytes room() const { return capacity - (outside + reserve); }
  bool fits() const { return taken() + reserve <= capacity; }
  /// The share of the capacity that is filled, reserve included: at most 1 exactly where it fits. 0
  /// without a capacity.
  double share() const;
};

Filling filling_of(const StagePrediction& stage, Bytes outside, Bytes reserve);
/// One for each class of ranks, in their order.
std::vector<Filling> fillings_of(const Plan& plan);
/// Index of the one that has least room left, the first of equals. Not of an empty list.
std::size_t fullest_of(std::span<const Filling> fillings);

/// Neighbouring classes of ranks that are shown as one.
struct AlikeStages {
  std::size_t first = 0, last = 0;  ///< indices of classes, both included
  std::size_t fullest = 0;
};
/// All by themselves up to `most`; else neighbours whose reserved bytes differ by at most a
/// hundredth of the first one's, or so much more that `most` groups are enough.
std::vector<AlikeStages> alike_stages(std::span<const Filling> fillings, std::size_t most);
/// "stage 3", "stages 3 to 30"; in owner mode "stage 0 owner 1 to stage 1 owner 0".
std::string name_of(const AlikeStages& alike, std::span<const StagePrediction> stages);

}  // namespace plimsoll
