// The ops of the optimizer are added tensor by tensor.
#include <map>
#include <utility>

#include "passes/graph/passes.h"
#include "passes/graph/step_ops.h"
#include "passes/strategy/precision_rules.h"

namespace plimsoll {

namespace {

/// Emits the ops of the update tensor by tensor, as a framework without flat arenas runs them
/// (docs/how-it-works/update.md names the sources): finite check and unscaling, squared norm of
/// every clipped tensor, their sum over the ranks, clip factor, scaling, update.
class StepBuilder {
 public:
  StepBuilder(Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), job_(context.job), scalars_(find_scalars(graph)) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.role != TensorRole::parameter || tensor.tied_to || !tensor.block) continue;
      parameters_.push_back(TensorId(i));
      elements_ += elements(tensor.shape) * graph.at(*tensor.block).count;
      clipped_ += tensor.clip ? graph.at(*tensor.block).count : 0;
    }
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      if (const auto& of = graph.tensors[i].gradient_of) gradient_.try_emplace(*of, TensorId(i));
    }
    for (const TensorId parameter : parameters_) {
      if (!gradient_.contains(parameter)) gradient_[parameter] = add_zero_gradient(parameter);
    }
  }

  bool run() {
    if (parameters_.empty()) return false;
    add_arena("parameters", TensorRole::parameter, DType::f32);
    gradient_arena_ = add_arena("gradients", TensorRole::gradient, DType::f32);
    begin();
    check_finite();
    norm();
    clip();
    update();
    return true;
  }

 private:
  void begin() {
    const auto& scale = job_.loss_scale;
    StepParams params;
    if (scale) params = {scale->initial, scale->growth, scale->backoff, scale->growth_interval};
    push(OpKind::begin_step, {scalars_}, {scalars_}, params);
    push(OpKind::fill, {}, {gradient_arena_}, FillParams{0});
    if (!scale) return;
    const TensorId factor = add_element(Scalar::loss_scale, "loss_scale");
    for (Op& op : graph_.ops) {  // the losses' gradients are where backward starts
      const bool begins =
          op.kind == OpKind::cross_entropy_backward || op.kind == OpKind::balance_experts_backward;
      if (begins) op.inputs.push_back(factor);
    }
  }

  /// With dynamic loss scaling, the flag of a rank covers its own gradients only.
  void check_finite() {
    if (!job_.loss_scale) return;
    const TensorId flag = add_value("not_finite", DType::i32);
    push(OpKind::check_finite, {gradient_arena_, scalars_}, {gradient_arena_, flag}, FlatParams{});
    TensorId found = flag;
    if (const auto axes = split_axes(); !axes.empty() || optimizer_shards(context_.strategy) > 1) {
      const TensorId number = add_value("not_finite.f32", DType::f32);
      push(OpKind::cast, {flag}, {number});
      TensorId whole = number;
      for (const Axis axis : axes) whole = reduce(whole, "not_finite", axis, Reduction::max);
      found = add_value("found", DType::i32);
      push(OpKind::cast, {whole}, {found});
    }
    push(OpKind::update_loss_scale, {found, scalars_}, {scalars_});
  }

  void norm() {
    norms_ = graph_.add(step_tensor("squared_norms", {std::max<std::int64_t>(clipped_, 1)}));
    graph_.at(norms_).arena = true;
    for (const TensorId parameter : parameters_) {
      const Tensor tensor = graph_.at(parameter);
      if (!tensor.clip) continue;
      const TensorId gradient = gradient_.at(parameter);
      FlatParams params;
      params.weight = norm_weight(tensor);
      if (context_.framework.kernels.squared_norm) {
        push(OpKind::squared_norm, {gradient}, {norms_}, params, tensor.block);
        continue;
      }
      Tensor squares = step_tensor(tensor.name + ".squares", tensor.shape);
      squares.block = tensor.block;
      const TensorId squared = graph_.add(std::move(squares));
      push(OpKind::square, {gradient}, {squared}, FlatParams{}, tensor.block);
      push(OpKind::reduce_sum, {squared}, {norms_}, params, tensor.block);
    }
  }

  void clip() {
    TensorId sum = add_value("squared_norm", DType::f32);
    push(OpKind::reduce_sum, {norms_}, {sum}, FlatParams{});
    for (const Axis axis : split_axes()) sum = reduce(sum, "squared_norm", axis, Reduction::sum);
    const TensorId norm = add_element(Scalar::gradient_norm, "gradient_norm");
    push(OpKind::square_root, {sum}, {norm});
    if (job_.clip_norm == 0) return;
    const TensorId limit = add_value("clip_norm", DType::f32);
    const TensorId larger = add_value("larger_norm", DType::f32);
    const TensorId factor = add_element(Scalar::clip, "clip");
    push(OpKind::fill, {}, {limit}, FillParams{job_.clip_norm});
    push(OpKind::maximum, {norm, limit}, {larger});
    push(OpKind::divide, {limit, larger}, {factor});
    for (const TensorId parameter : parameters_) {
      const Tensor& tensor = graph_.at(parameter);
      const TensorId gradient = gradient_.at(parameter);
      if (tensor.clip)
        push(OpKind::scale, {gradient, factor}, {gradient}, FlatParams{}, tensor.block);
    }
  }

  void update() {
    for (const TensorId parameter : parameters_) push_update(parameter);
  }

  void push_update(TensorId updated) {
    const Tensor tensor = graph_.at(updated);
    const TensorId gradient = gradient_.at(updated);
    const TensorId first = add_state(updated, "first_moment");
    Optimizer optimizer = job_.optimizer;
    optimizer.learning_rate *= tensor.rate;
    optimizer.weight_decay = weight_decay(tensor, optimizer);
    if (optimizer.kind == OptimizerKind::sgd) {
      SgdParams params = sgd_params(optimizer);
      params.clipped = true;
      push(OpKind::sgd, {updated, gradient, first, scalars_}, {updated, first}, params,
           tensor.block);
      return;
    }
    const TensorId second = add_state(updated, "second_moment");
    if (optimizer.kind == OptimizerKind::adamw) {
      AdamParams params = adam_params(optimizer);
      params.clipped = true;
      push(OpKind::adamw, {updated, gradient, first, second, scalars_}, {updated, first, second},
           params, tensor.block);
      return;
    }
    LambParams params = lamb_params(optimizer);
    params.clipped = true;
    Tensor pair = step_tensor(tensor.name + ".norms", {2});
    pair.block = tensor.block;
    TensorId norms = graph_.add(pair);
    push(OpKind::lamb_norms, {updated, gradient, first, second, scalars_}, {first, second, norms},
         params, tensor.block);
    if (tensor.split && context_.strategy.mp > 1) norms = reduce_pair(norms, tensor);
    push(OpKind::lamb, {updated, first, second, norms, scalars_}, {updated}, params, tensor.block);
  }

  // ---- parts ----

  /// Returns the axes along which ranks have parts of one tensor, or other tensors. They are in the
  /// published order of collectives, of which shard_optimizer adds the last.
  std::vector<Axis> split_axes() const {
    std::vector<Axis> axes;
    if (context_.strategy.mp > 1) axes.push_back(Axis::mp);
    if (context_.strategy.pp > 1) axes.push_back(Axis::pp);
    if (!experts_apart(context_.strategy)) return axes;
    // Replicas of other parameters have different experts, or different parts of them.
    if (context_.strategy.cp > 1 && context_.strategy.sharding_stage == 0) axes.push_back(Axis::cp);
    if (context_.strategy.dp > 1) axes.push_back(Axis::dp);
    return axes;
  }

  TensorId reduce(TensorId value, const std::string& name, Axis axis, Reduction reduction) {
    const TensorId whole = add_value(name + "." + std::string(to_text(axis)), DType::f32);
    push(OpKind::all_reduce, {value}, {whole}, CollectiveParams{Group{{axis}}, reduction});
    graph_.ops.back().stream = Stream::world;
    return whole;
  }

  /// Reduces the two norms of a tensor of which mp ranks hold parts.
  TensorId reduce_pair(TensorId norms, const Tensor& tensor) {
    Tensor pair = graph_.at(norms);
    pair.name += ".mp";
    const TensorId whole = graph_.add(std::move(pair));
    push(OpKind::all_reduce, {norms}, {whole}, CollectiveParams{Group{{Axis::mp}}, Reduction::sum},
         tensor.block);
    graph_.ops.back().stream = Stream::world;
    return whole;
  }

  double norm_weight(const Tensor& parameter) const {
    const bool split = parameter.split && parameter.split->degree > 1;
    return split ? 1 : 1 / double(context_.strategy.mp);
  }

  void push(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
            OpParams params = {}, std::optional<BlockId> block = {}) {
    graph_.ops.push_back(step_op(kind, std::move(inputs), std::move(outputs), std::move(params)));
    graph_.ops.back().block = block;
  }

  TensorId add_value(std::string name, DType dtype) {
    Tensor value = step_tensor(std::move(name), {1});
    value.dtype = dtype;
    return graph_.add(std::move(value));
  }

  TensorId add_element(Scalar which, std::string name) {
    Tensor value = step_tensor(std::move(name), {1});
    value.role = TensorRole::scalar;
    value.element = std::int64_t(which);
    return graph_.add(std::move(value));
  }

  /// The gradient of a parameter that no op reads is the value with which the arena was filled.
  TensorId add_zero_gradient(TensorId parameter) {
    Tensor gradient = step_tensor(graph_.at(parameter).name + ".gradient", {});
    gradient.shape = graph_.at(parameter).shape;
    gradient.split = graph_.at(parameter).split;
    gradient.block = graph_.at(parameter).block;
    gradient.role = TensorRole::gradient;
    gradient.gradient_of = parameter;
    return graph_.add(std::move(gradient));
  }

  TensorId add_state(TensorId parameter, const std::string& name) {
    Tensor state = graph_.at(parameter);
    state.name += "." + name;
    state.dtype = moment_dtype(context_.strategy);
    state.role = TensorRole::optimizer_state;
    state.init = Init::none;
    state.init_stddev = 0;
    state.decay = false;
    state.clip = true;
    state.rate = 1;
    state.weight_decay.reset();
    return graph_.add(std::move(state));
  }

  TensorId add_arena(std::string name, TensorRole role, DType dtype) {
    return add_step_arena(graph_, std::move(name), role, elements_, dtype);
  }

  Graph& graph_;
  const PassContext& context_;
  const Job& job_;
  const TensorId scalars_;
  std::vector<TensorId> parameters_;
  std::map<TensorId, TensorId> gradient_;  // by parameter
  std::int64_t elements_ = 0, clipped_ = 0;
  TensorId gradient_arena_, norms_;
};

}  // namespace

bool optimizer_step(Graph& graph, const PassContext& context) {
  return StepBuilder(graph, context).run();
}

}  // namespace plimsoll
