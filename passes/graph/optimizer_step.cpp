// The ops of the optimizer are added tensor by tensor.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
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
    if (!context_.strategy.gradients.release)
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
    const TensorId first = add_state(updated, 0);
    Optimizer optimizer = job_.optimizer;
    optimizer.learning_rate *= tensor.rate;
    optimizer.weight_decay = weight_decay(tensor, optimizer);
    if (optimizer.kind == OptimizerKind::adafactor)
      return push_adafactor(updated, first, optimizer);
    if (has_muon(graph_, job_, updated)) return push_muon(updated, first, optimizer);
    if (optimizer.kind == OptimizerKind::sgd) {
      SgdParams params = sgd_params(optimizer);
      params.clipped = true;
      push(OpKind::sgd, {updated, gradient, first, scalars_}, {updated, first}, params,
           tensor.block);
      return;
    }
    const TensorId second = add_state(updated, 1);
    if (optimizer.kind != OptimizerKind::lamb) {
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
    if (tensor.split && context_.strategy.mp > 1) norms = reduce_over_mp(norms, tensor);
    push(OpKind::lamb, {updated, first, second, norms, scalars_}, {updated}, params, tensor.block);
  }

  // ---- Muon ----

  /// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the direction of Nesterov's
  /// momentum is made orthogonal, and its length is that of AdamW's directions (Liu et al. 2025,
  /// arXiv 2502.16982, section 2.2). `sgd` with a rate of 0 adds to the momentum alone, and with a
  /// momentum of 0 it moves by the direction.
  void push_muon(TensorId updated, TensorId first, const Optimizer& optimizer) {
    const Tensor parameter = graph_.at(updated);
    const auto push_here = [&](OpKind kind, std::vector<TensorId> inputs,
                               std::vector<TensorId> outputs, OpParams params = {}) {
      push(kind, std::move(inputs), std::move(outputs), std::move(params), parameter.block);
    };
    const TensorId gradient = gradient_.at(updated);
    SgdParams momentum;
    momentum.momentum = optimizer.momentum;
    momentum.clipped = true;
    push_here(OpKind::sgd, {updated, gradient, first, scalars_}, {updated, first}, momentum);
    const TensorId ahead = add_local(parameter, "ahead", parameter.shape);
    const TensorId sum = add_local(parameter, "sum", parameter.shape);
    push_here(OpKind::multiply, {first}, {ahead}, FactorParams{optimizer.momentum});
    push_here(OpKind::add, {gradient, ahead}, {sum});
    const TensorId direction = orthogonal(parameter, of_length_one(parameter, sum));
    const TensorId left = add_local(parameter, "left", parameter.shape);
    SgdParams move = sgd_params(optimizer);
    move.momentum = 0;
    move.clipped = true;
    push_here(OpKind::sgd, {updated, direction, direction, scalars_}, {updated, left}, move);
  }

  /// Divides a matrix by its Frobenius norm, over all ranks that hold parts of it.
  TensorId of_length_one(const Tensor& parameter, TensorId matrix) {
    constexpr double kLeastNorm = 1e-7;  // Jordan et al. 2024: eps
    const auto number = [&](const char* name) { return add_local(parameter, name, {1}); };
    const auto push_here = [&](OpKind kind, std::vector<TensorId> inputs, TensorId output,
                               OpParams params = {}) {
      push(kind, std::move(inputs), {output}, std::move(params), parameter.block);
      return output;
    };
    FlatParams weight;
    weight.weight = 1 / copies_of(parameter);
    TensorId squares = push_here(OpKind::squared_norm, {matrix}, number("squares"), weight);
    if (is_split(parameter)) squares = reduce_over_mp(squares, parameter);
    const TensorId norm = push_here(OpKind::square_root, {squares}, number("norm"));
    const TensorId least = push_here(OpKind::fill, {}, number("least"), FillParams{kLeastNorm});
    const TensorId larger = push_here(OpKind::maximum, {norm, least}, number("larger"));
    const TensorId one = push_here(OpKind::fill, {}, number("one"), FillParams{1});
    const TensorId factor = push_here(OpKind::divide, {one, larger}, number("factor"));
    return push_here(OpKind::scale, {matrix, factor}, add_local(parameter, "unit", parameter.shape),
                     FlatParams{});
  }

  /// Returns a matrix with singular values near 0.2 sqrt(max(rows, columns)): five steps of Newton
  /// and Schulz with Jordan's polynomial. Each multiplies by the smaller gram matrix of both, or by
  /// that which sums over the dimension that mp splits.
  TensorId orthogonal(const Tensor& parameter, TensorId matrix) {
    constexpr int kSteps = 5;
    constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
    const std::int64_t rows = parameter.shape[0], columns = elements(parameter.shape) / rows;
    const bool split = is_split(parameter), split_rows = split && parameter.split->dim == 0;
    const bool by_rows = split ? !split_rows : rows <= columns;
    const std::int64_t side = by_rows ? rows : columns, parts = split ? parameter.split->degree : 1;
    const double length = 0.2 * std::sqrt(double(std::max(rows * (split_rows ? parts : 1),
                                                          columns * (split_rows ? 1 : parts))));
    MatmulParams gram_params{.transpose_a = !by_rows, .transpose_b = by_rows};
    gram_params.scale = 1 / copies_of(parameter);
    const auto local = [&](const std::string& name, Shape shape) {
      const TensorId id = add_local(parameter, name, std::move(shape));
      graph_.at(id).dtype = job_.precision;
      return id;
    };
    const auto push_here = [&](OpKind kind, std::vector<TensorId> inputs, TensorId output,
                               OpParams params) {
      push(kind, std::move(inputs), {output}, std::move(params), parameter.block);
    };
    TensorId x = matrix;
    if (job_.precision != DType::f32)
      push_here(OpKind::cast, {matrix}, x = local("narrow", {rows, columns}), {});
    for (int step = 0; step < kSteps; ++step) {
      const std::string name = std::to_string(step);
      TensorId gram = local("gram" + name, {side, side});
      push_here(OpKind::matmul, {x, x}, gram, gram_params);
      if (split) gram = reduce_over_mp(gram, parameter);
      const TensorId factor = local("factor" + name, {side, side});
      push_here(OpKind::multiply, {gram}, factor, FactorParams{kB});
      push_here(OpKind::matmul, {gram, gram}, factor,
                MatmulParams{.accumulate = true, .scale = kC});
      const double scale = step + 1 == kSteps ? length : 1;
      const TensorId next = local("x" + name, {rows, columns});
      push_here(OpKind::multiply, {x}, next, FactorParams{kA * scale});
      push_here(OpKind::matmul, by_rows ? std::vector{factor, x} : std::vector{x, factor}, next,
                MatmulParams{.accumulate = true, .scale = scale});
      x = next;
    }
    if (job_.precision == DType::f32) return x;
    const TensorId wide = add_local(parameter, "direction", parameter.shape);
    push_here(OpKind::cast, {x}, wide, {});
    return wide;
  }

  // ---- Adafactor ----

  /// Adafactor (Shazeer & Stern 2018, arXiv 1804.04235, algorithms 4 and 5) without first moments
  /// and relative steps, as Transformers' trainer runs it (transformers/optimization.py, Adafactor;
  /// trainer.py, get_optimizer_cls_and_kwargs). A vector's R C / mean(R) is R, as it has one
  /// column.
  void push_adafactor(TensorId updated, TensorId rows, const Optimizer& optimizer) {
    const Tensor parameter = graph_.at(updated);
    const TensorId columns = add_state(updated, 1), gradient = gradient_.at(updated);
    AdafactorParams params{optimizer.learning_rate, optimizer.weight_decay, true};
    const auto whole = [&](TensorId moment) {
      const Split split = graph_.at(moment).split.value_or(Split());
      const Shape& shape = graph_.at(moment).shape;
      return elements(shape) * split.degree - elements(shape) / shape[0] * split.padding;
    };
    params.rows = whole(rows);
    params.columns = whole(columns);
    params.copies = std::int64_t(copies_of(parameter));
    TensorId row_sums = add_local(parameter, "row_sums", graph_.at(rows).shape);
    TensorId column_sums = add_local(parameter, "column_sums", graph_.at(columns).shape);
    TensorId norm = add_local(parameter, "norm", {1});
    const auto push_here = [&](OpKind kind, std::vector<TensorId> inputs,
                               std::vector<TensorId> outputs) {
      push(kind, std::move(inputs), std::move(outputs), params, parameter.block);
    };
    push_here(OpKind::adafactor_sums, {gradient, scalars_}, {row_sums, column_sums});
    if (is_split(parameter)) {
      TensorId& of_parts = graph_.at(rows).split ? column_sums : row_sums;
      of_parts = reduce_over_mp(of_parts, parameter);
    }
    push_here(OpKind::adafactor_norm, {gradient, row_sums, column_sums, rows, columns, scalars_},
              {rows, columns, norm});
    if (is_split(parameter)) norm = reduce_over_mp(norm, parameter);
    push_here(OpKind::adafactor, {updated, gradient, rows, columns, norm, scalars_}, {updated});
  }

  bool is_split(const Tensor& parameter) const {
    return parameter.split && parameter.split->degree > 1;
  }

  /// Returns how many ranks hold each part of a tensor, as sums over mp count them.
  double copies_of(const Tensor& parameter) const {
    return is_split(parameter) ? double(parameter.split->copies) : 1;
  }

  /// Adds a value that exists while one parameter is updated.
  TensorId add_local(const Tensor& parameter, const std::string& name, Shape shape) {
    Tensor value = step_tensor(parameter.name + ".update." + name, std::move(shape));
    value.block = parameter.block;
    return graph_.add(std::move(value));
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

  /// Sums values of a tensor of which mp ranks hold parts.
  TensorId reduce_over_mp(TensorId values, const Tensor& tensor) {
    const TensorId whole = add_like(graph_, values, ".mp");
    push(OpKind::all_reduce, {values}, {whole}, CollectiveParams{Group{{Axis::mp}}, Reduction::sum},
         tensor.block);
    graph_.ops.back().stream = Stream::world;
    return whole;
  }

  double norm_weight(const Tensor& parameter) const {
    return is_split(parameter) ? 1 : 1 / double(context_.strategy.mp);
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

  /// Adds a moment. It is split as the parameter is, if it has the dimension.
  TensorId add_state(TensorId parameter, std::size_t moment) {
    Tensor state = graph_.at(parameter);
    state.name += moment == 0 ? ".first_moment" : ".second_moment";
    if (job_.optimizer.kind == OptimizerKind::adafactor) {
      const bool of_rows = !is_matrix(state) || !state.split || state.split->dim == 0;
      state.shape = moment_shape(job_, state, moment);
      if (of_rows != (moment == 0)) state.split.reset();
      if (state.split && moment == 1) --state.split->dim;
    }
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
