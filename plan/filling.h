// A Filling states how full a device is. Every text, JSON and page takes its numbers from here: the
// bytes that are taken, of the device's capacity, as nvidia-smi shows both.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll {

struct Filling {
  Bytes reserved;  ///< by the framework's allocator; by the bundled runtime: its arena
  Bytes outside;   ///< context and communicators: memory_outside_program
  Bytes reserve;   ///< kept free, as --reserve asked
  Bytes capacity;
  /// Returns the bytes that the device's driver would report as taken.
  Bytes taken() const { return reserved + outside; }
  /// Returns the bytes that the allocator may reserve at most.
  Bytes room() const { return capacity - (outside + reserve); }
  bool fits() const { return taken() + reserve <= capacity; }
  /// Returns the bytes that are missing for `taken` and `reserve`; 0 if the strategy fits.
  Bytes missing() const { return std::max(taken() + reserve - capacity, Bytes()); }
  /// Returns the taken share of the capacity, and 0 without a capacity.
  double share() const;
};

Filling filling_of(const StagePrediction& stage, Bytes outside, Bytes reserve);
/// Returns one filling for each class of ranks, in their order.
std::vector<Filling> fillings_of(const Plan& plan);
/// Returns the bytes that the plan takes of a device, on the stage that takes most.
Bytes most_taken(const Plan& plan);
/// Returns the index of the filling with the least room left, the first of equals. The list must
/// not be empty.
std::size_t fullest_of(std::span<const Filling> fillings);

/// AlikeStages are neighbouring classes of ranks that are shown as one.
struct AlikeStages {
  std::size_t first = 0, last = 0;  ///< indices of classes, both included
  std::size_t fullest = 0;
};
/// Returns each class by itself up to `most` classes. Above, it joins neighbours whose reserved
/// bytes differ by at most a hundredth of the first one's, or by as much more as `most` groups
/// need.
std::vector<AlikeStages> alike_stages(std::span<const Filling> fillings, std::size_t most);
/// Returns "stage 3" or "stages 3 to 30"; in owner mode "stage 0 owner 1 to stage 1 owner 0".
std::string name_of(const AlikeStages& alike, std::span<const StagePrediction> stages);

}  // namespace plimsoll
