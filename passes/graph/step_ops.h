// Functions that the passes share which write once-per-step ops.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

Op step_op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           OpParams params = {});
/// An f32 value of the optimizer phase.
Tensor step_tensor(std::string name, Shape shape);
TensorId add_step_arena(Graph& graph, std::string name, TensorRole role, std::int64_t elements,
                        DType dtype = DType::f32);
TensorId find_scalars(const Graph& graph);
/// The arena of all gradients. Absent where nothing is trained.
std::optional<TensorId> gradient_arena(const Graph& graph);
/// The one that the update reads: f32.
std::optional<TensorId> updating_gradients(const Graph& graph);

/// The arena of all parameters.
std::optional<TensorId> parameter_arena(const Graph& graph);

/// Along this axis ranks have gradients of other tensors, or other parts of them: the gradient
/// norm, and the flag of what is not finite where it is a value of its own, are combined over it
/// too.
void reduce_norms_over(Graph& graph, Axis axis);
/// Along this axis ranks have other parts of the same tensors: so are the norms of single tensors
/// (LAMB).
void reduce_tensor_norms_over(Graph& graph, Axis axis);

/// The weight decay of one tensor: its own, else the optimizer's where decay applies.
double weight_decay(const Tensor& parameter, const Optimizer& optimizer);
AdamParams adam_params(const Optimizer& optimizer);
SgdParams sgd_params(const Optimizer& optimizer);
LambParams lamb_params(const Optimizer& optimizer);

}  // namespace plimsoll
