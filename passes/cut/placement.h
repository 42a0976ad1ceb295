// A placement is a parameter of a stage before it has a place in the arenas.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/tensor.h"

namespace plimsoll {

struct Placement {
  TensorId parameter;
  std::size_t instance = 0;          ///< that produces its gradient
  std::optional<std::size_t> entry;  ///< of the bundle; absent for a tied copy
  double norm_share = 1;
  std::int64_t room = 0;              ///< elements with padding
  std::optional<std::int64_t> owner;  ///< where whole tensors are owned
  std::size_t completed = 0;          ///< place in the order in which backward completes gradients
  bool experts = false;               ///< of experts that have a grid of their own
};

}  // namespace plimsoll
