// Parameter casts: which parameters ops read as they are, and which only through casts.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

bool is_parameter(const Tensor& tensor);
/// Returns the parameter whose memory a parameter uses.
TensorId owner_of(const Graph& graph, TensorId id);
bool casts_parameter(const Graph& graph, const Op& op);
/// Returns the parameter that a tensor is, or of which it is a cast, if any.
std::optional<TensorId> parameter_of(const Graph& graph, TensorId id);

/// A ParameterRead has the values of a parameter that ops outside the optimizer read.
struct ParameterRead {
  TensorId parameter;
  /// The low-precision value that casts of the parameter give. It is the output of the first cast,
  /// and outputs of later casts are aliases of it.
  std::optional<TensorId> twin;
  /// The number of uses that are not casts to the twin. Where there are such uses, or no casts, the
  /// parameter itself is read.
  std::int64_t other_uses = 0;
  bool operator==(const ParameterRead&) const = default;
};
/// Returns the parameters that ops outside the optimizer read, in order of their ids
/// (find_broadcast_vars and optimize_cast of Paddle fleet, PR 35878).
std::vector<ParameterRead> parameters_read(const Graph& graph);

}  // namespace plimsoll
