// The host updates a share of what a rank updates, in its own memory, or has the moments between
// updates.
#include <algorithm>
#include <utility>

#include "passes/graph/passes.h"
#include "passes/graph/step_ops.h"
#include "passes/strategy/offload_rules.h"

namespace plimsoll {

namespace {

bool updates(const Op& op) {
  return op.phase == Phase::optimizer &&
         (op.kind == OpKind::adamw || op.kind == OpKind::adamw_8bit || op.kind == OpKind::sgd);
}

class Offload {
 public:
  Offload(Graph& graph, const Strategy& strategy, std::size_t update)
      : graph_(graph), strategy_(strategy), at_(update), device_(graph.ops[update]) {}

  void run() {
    const std::int64_t updated = elements(graph_.at(device_.inputs[kFirstMoment]).shape);
    share_ = host_elements(strategy_, updated);
    // A cast behind the update writes the parameters for which the device has masters.
    const bool casts =
        at_ + 1 < graph_.ops.size() && graph_.ops[at_ + 1].kind == OpKind::cast_parameters;
    parameters_ = casts ? graph_.ops[at_ + 1].outputs[0] : written();
    std::vector<Op> host = host_ops();
    const auto place = [&](std::size_t at, Op op) {
      graph_.ops.insert(graph_.ops.begin() + std::ptrdiff_t(at), std::move(op));
    };
    std::size_t behind = at_ + (casts ? 2 : 1);
    if (share_ == updated) {
      graph_.ops.erase(graph_.ops.begin() + std::ptrdiff_t(at_),
                       graph_.ops.begin() + std::ptrdiff_t(behind));
      behind = at_;
    } else {
      keep_on_device(updated - share_);
    }
    // The device's update runs beside the host's where it is issued behind the copy.
    place(strategy_.optimizer.overlap_offload ? behind : at_, std::move(host[0]));
    for (std::size_t i = 1; i < host.size(); ++i) place(behind + i, std::move(host[i]));
  }

 private:
  static constexpr std::size_t kGradients = 1, kFirstMoment = 2;

  /// Returns the parameters that the update writes: beside masters, or those it works on.
  TensorId written() const {
    const TensorId last = device_.outputs.back();
    return graph_.at(last).role == TensorRole::parameter ? last : device_.outputs[0];
  }

  /// Returns the copy of gradients, the host's update, and the copy of parameters. Parameters in
  /// the host's memory are cast there instead, unless the update is of themselves.
  std::vector<Op> host_ops() {
    const TensorId gradients = add("host_gradients", TensorRole::communication);
    Op update = device_;
    update.kind = device_.kind == OpKind::adamw ? OpKind::host_adamw : OpKind::host_sgd;
    update.stream = Stream::host;
    const bool here = keeps_trained_on_host(strategy_);
    graph_.at(parameters_).on_host = here;
    const bool own = here && graph_.at(parameters_).dtype == DType::f32;
    update.inputs[0] = own ? parameters_ : add("host_parameters", TensorRole::master_parameter);
    update.inputs[kGradients] = gradients;
    update.inputs[kFirstMoment] = add_moment("host_first_moment", device_.inputs[kFirstMoment]);
    update.outputs = {update.inputs[0], update.inputs[kFirstMoment]};
    if (device_.kind == OpKind::adamw) {
      constexpr std::size_t kSecondMoment = kFirstMoment + 1;
      update.inputs[kSecondMoment] =
          add_moment("host_second_moment", device_.inputs[kSecondMoment]);
      update.outputs.push_back(update.inputs[kSecondMoment]);
    }
    Op out = step_op(OpKind::copy_to_host, {device_.inputs[kGradients]}, {gradients});
    if (strategy_.optimizer.overlap_offload) out.stream = Stream::to_host;
    if (own) return {std::move(out), std::move(update)};
    Op back = step_op(here ? OpKind::cast_parameters : OpKind::copy_to_device, {update.inputs[0]},
                      {parameters_});
    if (here) back.stream = Stream::host;
    return {std::move(out), std::move(update), std::move(back)};
  }

  TensorId add(const char* name, TensorRole role) {
    const TensorId id = add_step_arena(graph_, name, role, share_);
    graph_.at(id).on_host = true;
    return id;
  }

  TensorId add_moment(const char* name, TensorId moment) {
    device_states_.push_back(moment);
    return add(name, TensorRole::optimizer_state);
  }

  /// Leaves the device the state of so many elements.
  void keep_on_device(std::int64_t rest) {
    for (const TensorId moment : device_states_) graph_.at(moment).shape = {rest};
    Tensor& updated = graph_.at(device_.inputs[0]);
    if (updated.role == TensorRole::master_parameter) updated.shape = {rest};
  }

  Graph& graph_;
  const Strategy& strategy_;
  const std::size_t at_;
  const Op device_;
  std::int64_t share_ = 0;
  TensorId parameters_;
  std::vector<TensorId> device_states_;
};

/// Removes the arenas of state that no op has any more.
void remove_states(Graph& graph) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    Tensor& tensor = graph.tensors[i];
    const bool state =
        tensor.role == TensorRole::optimizer_state || tensor.role == TensorRole::master_parameter;
    if (!tensor.arena || !state) continue;
    const bool used = std::any_of(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
      return std::find(op.inputs.begin(), op.inputs.end(), TensorId(i)) != op.inputs.end();
    });
    if (!used) tensor.arena = false;
  }
  remove_unused_tensors(graph);
}

/// Copies both moments from the host's memory before the update of the device, and back behind it.
void page_moments(Graph& graph, std::size_t at) {
  const std::vector<TensorId> inputs = graph.ops[at].inputs;
  std::vector<Op> before, behind;
  for (const TensorId moment : {inputs[2], inputs[3]}) {
    Tensor there = graph.at(moment);
    there.name = "host_" + there.name;
    there.on_host = true;
    const TensorId host = graph.add(std::move(there));
    before.push_back(step_op(OpKind::copy_to_device, {host}, {moment}));
    behind.push_back(step_op(OpKind::copy_to_host, {moment}, {host}));
  }
  const auto update = graph.ops.begin() + std::ptrdiff_t(at);
  const auto first = graph.ops.insert(update, before.begin(), before.end());
  graph.ops.insert(first + std::ptrdiff_t(before.size()) + 1, behind.begin(), behind.end());
}

}  // namespace

bool offload_optimizer(Graph& graph, const PassContext& context) {
  const OptimizerChoices& choices = context.strategy.optimizer;
  if (choices.offload_percent == 0 && !choices.paged) return false;
  const auto update = std::find_if(graph.ops.begin(), graph.ops.end(), updates);
  if (update == graph.ops.end()) return false;
  if (choices.paged) {
    page_moments(graph, std::size_t(update - graph.ops.begin()));
    return true;
  }
  Offload(graph, context.strategy, std::size_t(update - graph.ops.begin())).run();
  remove_states(graph);
  return true;
}

}  // namespace plimsoll
