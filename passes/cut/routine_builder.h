// A RoutineBuilder makes one routine of ops of a Graph: local tensors, storage that in-place ops
// share, slots, waits, the frame and ports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/cut/cut_blocks.h"

namespace plimsoll {

/// A Crossing has the tensors that one routine of a block leaves for another, beside its borders.
/// The tensors of each list lie one after another in its slot, so that all routines agree.
struct Crossing {
  std::vector<TensorId> saved, saved_for_weights, offloaded, deferred, carried;
  /// Values of in-place ops in several parts of a routine lie where another tensor does: the key
  /// where its value does.
  std::map<TensorId, TensorId> lies_as;
  /// Tensors that a stream of communications writes in one part of a routine for another.
  std::set<TensorId> awaited;

  const std::vector<TensorId>* of(SlotKind kind) const;
};

class RoutineBuilder {
 public:
  RoutineBuilder(const Graph& graph, const CutBlock* bundle, std::optional<BlockId> block,
                 Crossing crossing = {}, bool scattered = false)
      : graph_(graph),
        bundle_(bundle),
        block_(block),
        crossing_(std::move(crossing)),
        scattered_(scattered) {}
  /// A routine of once-per-step ops on one tensor: each operand is a slot of its own.
  static RoutineBuilder of_one_tensor(const Graph& graph) {
    RoutineBuilder builder(graph, nullptr, {});
    builder.one_tensor_ = true;
    return builder;
  }

  /// Can be called once.
  Routine build(std::string name, Phase phase, const std::vector<Op>& ops);
  /// Returns whether the tensor has a place outside the frame.
  bool outlives_the_call(TensorId global) const { return crossing_place(global).has_value(); }

 private:
  struct CrossingPlace {
    SlotKind kind;
    Bytes offset;
    std::optional<std::size_t> entry{};  ///< of the bundle, where its tensors are scattered
    bool operator==(const CrossingPlace&) const = default;
  };

  TensorId local(TensorId global);
  void add_op(Op op);
  void share_storage();
  std::optional<CrossingPlace> crossing_place(TensorId global) const;
  CrossingPlace place_in_bundle(TensorId global) const;
  CrossingPlace place_of_frozen(TensorId global) const;
  SlotKind arena_slot(TensorId global) const;
  SlotKind state_slot(TensorId global) const;
  SlotKind list_slot(TensorId global) const;
  std::size_t bundle_entry(TensorId parameter) const;
  std::vector<TensorId> weight_copies() const;
  Bytes size_of(const std::vector<TensorId>& list) const;
  std::optional<Bytes> offset_in(const std::vector<TensorId>& list, TensorId global) const;
  Bytes slot_bytes(SlotKind kind, TensorId global) const;
  void find_slots();
  bool is_fresh(const Op& op, const std::vector<std::optional<std::size_t>>& producer) const;
  void add_waits();
  std::size_t over_at(std::size_t i) const;
  void place_frame();
  void add_ports();
  bool is_read_outside(std::size_t tensor) const;

  const Graph& graph_;
  const CutBlock* bundle_;
  std::optional<BlockId> block_;
  const Crossing crossing_;
  bool one_tensor_ = false;
  bool scattered_ = false;
  Routine routine_;
  std::map<TensorId, TensorId> local_;
  std::vector<TensorId> global_;      // by local index
  std::vector<std::size_t> storage_;  // by local index
  std::vector<bool> in_frame_;        // by local index
};

}  // namespace plimsoll
