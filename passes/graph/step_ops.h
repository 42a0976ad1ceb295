// These functions, which the passes share, write once-per-step ops.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

Op step_op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           OpParams params = {});
/// Makes an f32 value of the optimizer phase.
Tensor step_tensor(std::string name, Shape shape);
TensorId add_step_arena(Graph& graph, std::string name, TensorRole role, std::int64_t elements,
                        DType dtype = DType::f32);
/// Returns the index of the first op of this kind that runs once per step.
std::optional<std::size_t> find_step_op(const Graph& graph, OpKind kind);
TensorId find_scalars(const Graph& graph);
/// Returns the arena of all gradients. It is absent where nothing is trained.
std::optional<TensorId> gradient_arena(const Graph& graph);
/// Returns the f32 arena of gradients that the update reads.
std::optional<TensorId> updating_gradients(const Graph& graph);

/// Returns the arena of all parameters.
std::optional<TensorId> parameter_arena(const Graph& graph);

/// Combines the gradient norm over this axis too, because ranks along it have gradients of other
/// tensors, or other parts of them. Where the flag for values that are not finite is a value of its
/// own, it is combined as well.
void reduce_norms_over(Graph& graph, Axis axis);
/// Combines the norms of single tensors (LAMB) over this axis, because ranks along it have other
/// parts of the same tensors.
void reduce_tensor_norms_over(Graph& graph, Axis axis);

/// Returns whether Muon updates a parameter: a weight of a layer, which is the matrix of its first
/// dimension and all others. It has no second moment. AdamW updates the other ones.
bool has_muon(const Graph& graph, const Job& job, TensorId parameter);
/// Returns whether an optimizer of matrices takes a parameter for one, of its first dimension and
/// all others. Biases and norms are vectors.
bool is_matrix(const Tensor& parameter);
/// Returns the shape of the first (0) or second moment of a parameter. Adafactor's first ones are
/// of rows, its second ones of columns; a vector has one column.
Shape moment_shape(const Job& job, const Tensor& parameter, std::size_t moment);
/// Returns the elements of a moment of a parameter that is updated on its own.
std::int64_t moment_elements(const Graph& graph, const Job& job, TensorId parameter,
                             std::size_t moment);

/// Returns the weight decay of one tensor: its own, else the optimizer's where decay applies.
double weight_decay(const Tensor& parameter, const Optimizer& optimizer);
AdamParams adam_params(const Optimizer& optimizer);
SgdParams sgd_params(const Optimizer& optimizer);
LambParams lamb_params(const Optimizer& optimizer);

}  // namespace plimsoll
