// In owner mode ranks of a sharding group own whole tensors instead of equal parts of all elements,
// as in Paddle's published systems. This folder has what differs: who owns what, how tensors travel
// together, and the routines of a rank that owns some tensors of a block.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// A Placement is a parameter of a stage before it has a place in the arenas.
struct Placement {
  TensorId parameter;
  std::size_t instance = 0;          ///< that produces its gradient
  std::optional<std::size_t> entry;  ///< of the bundle; absent for a tied copy
  double norm_share = 1;
  std::int64_t room = 0;              ///< elements with padding
  std::optional<std::int64_t> owner;  ///< where whole tensors are owned
  std::size_t completed = 0;          ///< place in the order in which backward completes gradients
  bool experts = false;               ///< of experts with a grid that is not the stage's
};

struct OwnerMode {
  ShardingOwner rule = ShardingOwner::prefix;
  std::int64_t ranks = 1;
  Bytes reduced, gathered;  ///< the most bytes that travel at once
  bool coalesces = false;   ///< what travels at once is copied together first
};
/// Returns nothing for strategies whose ranks update equal parts.
std::optional<OwnerMode> owner_mode(const Strategy& strategy);

/// Chooses the owners of a stage's tensors in the order of the model, which is the reverse of
/// `all`, and brings those of an owner together, the last owner's first. If `first` has the
/// placements of the first stage, the parameter `tied` has the owner that it has there.
void assign_owners(const OwnerMode& mode, const Graph& graph, std::optional<TensorId> tied,
                   std::optional<std::vector<Placement>> first, std::vector<Placement>& all);

/// Returns whether a strategy scatters the parameters of a block. Owned tensors lie in the order of
/// their owners, which is the model's order only with prefix ownership. From stage 2 on, the part
/// of a block that a rank owns lies apart from the rest.
bool scatters_bundles(const Strategy& strategy);

}  // namespace plimsoll
