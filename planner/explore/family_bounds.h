// Family bounds: lower bounds for whole groups of strategies at once, by arithmetic on the costs of
// one layer. They are looser than bounds.h, and about a thousand times as fast.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "planner/bounds/block_facts.h"
#include "planner/bounds/bounds.h"
#include "planner/explore/layer_kinds.h"
#include "planner/space/space.h"
#include "predict/memo.h"

namespace plimsoll {

/// Picoseconds and bytes of one micro-batch in the blocks of a model.
struct FamilyWork {
  /// Time and bytes of every layer.
  struct Layers {
    SumsOfLayers forward, backward, kept;
  };
  Layers keep, repeat;  ///< of layers that keep all, and of those that recompute
  double embedding_forward = 0, embedding_backward = 0, embedding_kept = 0;
  double head_forward = 0, head_backward = 0;
  /// Sums of one field of WeightBytes.
  struct Weights {
    Bytes WeightBytes::*bytes;
    SumsOfLayers layers = {};
    double embedding = 0, head = 0;
  };
  std::array<Weights, 4> weights = {{{&WeightBytes::gradients},
                                     {&WeightBytes::parameters},
                                     {&WeightBytes::expert_gradients},
                                     {&WeightBytes::expert_parameters}}};
  double after_output = 0;    ///< the most that a forward goes on after its output is written
  double after_gradient = 0;  ///< the same of a backward and the gradient of its input
  bool known = true;          ///< false: a trunk and a branch

  FamilyWork(const LayerKinds& layers, const MicroBatchFacts& facts);
  /// Times of `one`, and bytes of micro-batches of so many sequences, from those of one and of two.
  /// Each tensor grows by as much with every sequence, or not at all, except for rounding.
  FamilyWork(const LayerKinds& layers, const MicroBatchFacts& one, const MicroBatchFacts& two,
             std::int64_t sequences);
  /// Returns times without bytes.
  static FamilyWork times(const LayerKinds& layers, const MicroBatchFacts& facts);

 private:
  using KeptBytes = std::function<double(std::size_t block)>;
  FamilyWork(const LayerKinds& layers, const MicroBatchFacts& facts, const KeptBytes& kept);
};

/// Returns what a chunk's layers take, by what they take if they keep all and if they recompute.
double sum_of(const Strategy& strategy, LayerRange chunk, const SumsOfLayers& keep,
              const SumsOfLayers& repeat);

/// Lower bounds for some arrangements of one group.
struct GroupBound {
  std::size_t first = 0, last = 0;  ///< arrangements, of Arrangements::all
  Picoseconds step;
  Bytes peak;
};

/// Lower bounds for the groups of a family.
struct FamilyBound {
  std::vector<GroupBound> groups;       ///< only arrangements that may fit
  std::size_t lasting_too_large = 0;    ///< arrangements whose bytes between steps do not fit
  std::size_t in_flight_too_large = 0;  ///< others, with micro-batches in flight
};

/// The least bounds of all groups. A search keeps these alone, since groups are many, and bounds
/// the groups again when the family's turn comes.
struct FamilySummary {
  Picoseconds step;
  Bytes peak;
  bool fits = true;          ///< some arrangement may fit
  bool lasting_fits = true;  ///< the bytes between steps of some arrangement fit
};
FamilySummary summary_of(const FamilyBound& bound);

/// Bounds of families for one target. They are safe to share between threads.
///
/// Time: the slowest stage works through all its layers for every micro-batch. The first
/// micro-batch has to come to it through the chunks before it, and the last has to go back through
/// them (time_bound.h, without dispatch). All transfers of one direction into a stage follow each
/// other, and so do the collectives of replicas (step_traffic.h). Memory: before its first
/// backward, stage 0 keeps the activations of min(pp, micro-batches) micro-batches in every one of
/// its chunks. This holds for each order (pipeline_order.h). The bytes that live between steps come
/// on top.
class FamilyBounds {
 public:
  FamilyBounds(const Target& target, const Bounds& bounds)
      : target_(target), bounds_(bounds), layers_(target.job) {}

  /// Returns the bounds of a family whose framework may reserve `room` bytes on a device.
  FamilyBound of(const StrategyFamily& family, Bytes room) const {
    return bound(family, room, Extent::all);
  }
  /// Returns bounds without the communication between stages and between replicas. They take a
  /// third of the time to find.
  FamilyBound work(const StrategyFamily& family, Bytes room) const {
    return bound(family, room, Extent::work);
  }
  /// Whether the work of the family's layers takes long to find, since a ring of many ranks has a
  /// round for each of them.
  bool takes_long(const StrategyFamily& family) const;
  /// Returns looser bounds of such a family, by the least times of layers in a ring whose rounds
  /// are not lowered (block_facts.cpp).
  FamilyBound coarse(const StrategyFamily& family, Bytes room) const {
    return bound(family, room, Extent::ring);
  }
  /// Returns the least bytes that the framework reserves for any arrangement of the family.
  Bytes least_reserved(const StrategyFamily& family) const;

 private:
  /// Bytes that live between steps on a stage are at least `whole` and a part of each layer.
  struct Line {
    double whole = 0;
    SumsOfLayers layers;
    double at(std::span<const LayerRange> ranges) const;
  };
  struct StageLines {
    Line program, framework;  ///< of the LastingBytes fields with these names
  };
  /// Lines of the first, a middle and the last stage; a pipeline of one stage has only the first.
  using Lines = std::array<StageLines, 3>;
  class Family;
  enum class Extent : std::uint8_t { ring, work, all };
  FamilyBound bound(const StrategyFamily& family, Bytes room, Extent extent) const;

  bool has_lines(const Strategy& strategy) const;
  /// Bytes between steps, by stage, of small models with so many layers per stage, and so many
  /// times the fewest shards. All layers of a small model have the weights of one kind.
  static constexpr std::array<std::int64_t, 2> kShards = {2, 4}, kLayers = {1, 9};
  using Sample = std::array<std::array<std::vector<LastingBytes>, 2>, 2>;  ///< by shards and layers
  using Samples = std::vector<Sample>;                                     ///< by kind of weights

  const Lines& lines(const Strategy& strategy) const;
  Lines find_lines(const Samples& samples, std::int64_t shards, std::int64_t unit) const;
  std::shared_ptr<const FamilyWork> work_of(const Strategy& strategy, DeviceKindIndex kind,
                                            Extent extent) const;
  const Samples& samples(const Strategy& strategy) const;
  Sample find_sample(const Job& job, const Strategy& strategy) const;

  const Target target_;
  const Bounds& bounds_;
  const LayerKinds layers_;
  mutable Memo<Samples> samples_;
  /// By the key of samples, number of shards and expert_unit().
  mutable Memo<Lines, std::int64_t, std::int64_t> lines_;
  mutable std::mutex mutex_;
  /// By facts. Families share them.
  mutable std::map<const MicroBatchFacts*, std::shared_ptr<const FamilyWork>> work_;
};

}  // namespace plimsoll
