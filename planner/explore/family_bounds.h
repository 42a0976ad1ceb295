// StrategyFamily bounds: lower bounds for whole groups of strategies at once, by arithmetic on what
// one layer takes. They are looser than bounds.h, and about a thousand times as fast.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/space/space.h"

namespace plimsoll {

/// Lower bounds of some arrangements of one group.
struct GroupBound {
  std::size_t first = 0, last = 0;  ///< arrangements, of Arrangements::all
  Picoseconds step;
  Bytes peak;
};

/// The least that a family's groups need.
struct FamilyBound {
  std::vector<GroupBound> groups;  ///< only arrangements that may fit
  std::size_t cannot_live = 0;     ///< arrangements whose lasting bytes alone do not fit
  std::size_t cannot_fly = 0;      ///< the same with their micro-batches in flight
};

/// The least of all groups. They are many, so that a search bounds them again when it is their
/// turn.
struct FamilySummary {
  Picoseconds step;
  Bytes peak;
  bool fits = true;   ///< some arrangement may
  bool lives = true;  ///< of some arrangement what lasts does
};
FamilySummary summary_of(const FamilyBound& bound);

/// Bounds of families for one job on one cluster. They are safe to share between threads.
///
/// Time: the slowest stage works through all its layers for every micro-batch, after the first has
/// come to it through the chunks before it and before the last goes back through them
/// (time_bound.h, without transfers and dispatch). Memory: before its first backward, stage 0 keeps
/// what min(pp, micro-batches) of them leave for backward in every one of its chunks, in each order
/// (pipeline_order.h), beside the bytes that live between steps.
class FamilyBounds {
 public:
  /// `room`: bytes of a device for what a framework reserves, by strategy.
  FamilyBounds(const Job& job, const Framework& framework, const Bounds& bounds)
      : job_(job), framework_(framework), bounds_(bounds) {}

  FamilyBound of(const StrategyFamily& family, Bytes room) const;
  /// Whether the work of the family's layers takes long to find out: a ring of many ranks has a
  /// step for each of them.
  bool takes_long(const StrategyFamily& family) const;
  /// A looser bound of such a family: lasting bytes, and what layers take at least in a ring whose
  /// rounds are not lowered (ring_rounds.h).
  FamilyBound coarse(const StrategyFamily& family, Bytes room) const;
  /// The bytes that a framework reserves at least for any arrangement of the family.
  Bytes least_reserved(const StrategyFamily& family) const;

 private:
  /// Bytes that live between steps on a stage of n layers: at least whole + n x layer.
  struct Line {
    double whole = 0, layer = 0;
    double at(std::int64_t layers) const { return std::max(0.0, whole + layer * double(layers)); }
  };
  struct StageLines {
    Line program, framework;  ///< as LastingBytes
  };
  /// Lines of the first, a middle and the last stage; a pipeline of one stage has only the first.
  using Lines = std::array<StageLines, 3>;
  struct Work;
  class Family;

  bool has_lines(const Strategy& strategy) const;
  /// Lasting bytes by stage of small models: by shards, by layers of each stage.
  static constexpr std::array<std::int64_t, 2> kShards = {2, 4}, kLayers = {1, 9};
  using Samples = std::array<std::array<std::vector<LastingBytes>, 2>, 2>;

  Lines lines(const Strategy& strategy) const;
  std::shared_ptr<const Samples> samples(const Strategy& strategy) const;
  Samples find_samples(const Strategy& strategy) const;

  const Job& job_;
  const Framework& framework_;
  const Bounds& bounds_;
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, bool>;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const Samples>> samples_;
};

}  // namespace plimsoll
