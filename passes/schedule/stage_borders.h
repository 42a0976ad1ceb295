// Stage borders say where the tensors between the parts of a model go: to another stage, or to the
// other chunk of the same stage.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "passes/layout/arena_layout.h"
#include "passes/schedule/stage_transfers.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

constexpr Direction direction_of(const Action& action) {
  return action.kind == ActionKind::forward ? Direction::activation : Direction::gradient;
}

/// A HandOver says how the border that an action computes reaches its reader.
enum class HandOver : std::uint8_t {
  none,      ///< nobody reads it
  transfer,  ///< it is sent to another stage
  local,     ///< the other chunk of this stage reads it
};

/// The borders of one stage's chunks, and those that one chunk has left for the other.
class StageBorders {
 public:
  StageBorders(const Graph& graph, const PassContext& context, const StageLayout& stages,
               const ArenaLayout& layout)
      : graph_(graph), context_(context), stages_(stages), layout_(layout) {}

  bool is_first_part(const Action& action) const { return part(action) == 0; }
  bool is_last_part(const Action& action) const { return part(action) + 1 == stages_.parts.size(); }

  /// A Border is a tensor between two parts, and the events after which it may be read.
  struct Border {
    BufferId payload;
    std::vector<Wait> waits;
  };
  /// Returns the border from which an action begins, received or left here, if it begins from one.
  std::optional<Border> before(const Action& action, StageTransfers& transfers);
  /// Leaves the border of an action for the other chunk of this stage, where that reads it.
  void leave(const Action& action, BufferId payload, std::vector<Wait> waits);
  /// Hands over the border from which the action of a chunk without layers begins.
  void pass_on(const Action& action, Border border, StageTransfers& transfers);

  HandOver hand_over(const Action& action) const;
  /// Returns the stages from this one to the one that an action's border is sent to.
  std::int64_t sent_to(const Action& action) const;
  /// Returns the tensor that the action begins from, where another stage computes it.
  std::optional<StageTransfers::Incoming> incoming(const Action& action) const;
  /// Returns actions as this Program's calls number their micro-batches (Call::micro_batch): those
  /// of the second chunk may be the partner's.
  std::vector<Action> numbered(std::vector<Action> actions) const;
  /// Returns the instances of the chunk of this stage that reads an action's border, if it has any.
  std::optional<std::pair<std::size_t, std::size_t>> reader(const Action& action) const;
  /// Returns what the stage receives, in the order in which each of the others sends it. Where no V
  /// is, this is the order of the stage's own actions, and the list is empty. In a V activations of
  /// one chunk and gradients of the other come on one stream.
  std::vector<StageTransfers::Incoming> expected() const;

 private:
  std::size_t part(const Action& action) const;
  const ModelPart& place_behind(const Action& action, std::int64_t by) const;
  std::int64_t stage_offset(const Action& action, std::int64_t by) const;
  HandOver hand_over_to(const ModelPart& place) const;
  TensorId border_before(const Action& action) const;

  const Graph& graph_;
  const PassContext& context_;
  const StageLayout& stages_;
  const ArenaLayout& layout_;
  std::map<std::pair<Direction, std::int64_t>, Border> left_;  ///< by direction and micro-batch
};

}  // namespace plimsoll
