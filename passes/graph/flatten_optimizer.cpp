// The update of single tensors is replaced by ops over flat arenas.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "passes/graph/attribute_groups.h"
#include "passes/graph/passes.h"
#include "passes/graph/step_ops.h"
#include "passes/strategy/precision_rules.h"

namespace plimsoll {

namespace {

/// Returns whether an op runs after the gradients are complete, in f32. Such ops are rewritten
/// here.
bool after_gradients(const Op& op) {
  return op.phase == Phase::optimizer && op.kind != OpKind::begin_step && op.kind != OpKind::fill &&
         op.kind != OpKind::cast;
}

/// The facts about the step that the ops of single tensors hold.
struct Step {
  double clip_limit = 0;   ///< 0: never clips
  bool scales = false;     ///< dynamic loss scaling
  Group split{{}, false};  ///< ranks with other tensors, or other parts of them
};

class Flattener {
 public:
  Flattener(Graph& graph, const PassContext& context, TensorId gradients)
      : graph_(graph),
        context_(context),
        gradients_(gradients),
        scalars_(find_scalars(graph)),
        groups_(attribute_groups(graph, context.job.optimizer)) {}

  void run() {
    const auto first = std::find_if(graph_.ops.begin(), graph_.ops.end(), after_gradients);
    const std::vector<Op> ops(first, graph_.ops.end());
    graph_.ops.erase(first, graph_.ops.end());
    const Step step = read(ops);
    add_arenas();
    context_.strategy.optimizer.flatten == Flatten::fused ? fused(step) : coalesced(step, ops);
    remove_unused_tensors(graph_);
  }

 private:
  Step read(const std::vector<Op>& ops) const {
    Step step;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      if (op.kind == OpKind::fill && ops[i + 1].kind == OpKind::maximum) {
        step.clip_limit = std::get<FillParams>(op.params).value;
      } else if (op.kind == OpKind::update_loss_scale) {
        step.scales = true;
      } else if (op.kind == OpKind::all_reduce && !op.block) {
        const AxisSet axes = std::get<CollectiveParams>(op.params).group.axes;
        for (std::size_t a = 0; a < kAxes; ++a) {
          if (axes.has(Axis(a))) step.split.axes.add(Axis(a));
        }
      }
    }
    return step;
  }

  // ---- arenas ----

  void add_arenas() {
    const Tensor gradients = graph_.at(gradients_);
    const auto add = [&](const char* name, TensorRole role) {
      return add_step_arena(graph_, name, role, gradients.shape[0],
                            moment_dtype(context_.strategy));
    };
    updated_ = *parameter_arena(graph_);
    first_ = add("first_moment", TensorRole::optimizer_state);
    if (optimizer().kind != OptimizerKind::sgd)
      second_ = add("second_moment", TensorRole::optimizer_state);
  }

  // ---- one op of each kind over everything, with a table of segments ----

  void fused(const Step& step) {
    // The update is issued range by range, and no op reads all gradients.
    if (context_.strategy.gradients.release) return update(gradients_, {}, true);
    TensorId sum = add_value("squared_norm");
    push(OpKind::squared_norm, {gradients_}, {sum}, FlatParams{});
    if (!step.split.axes.empty()) {
      // A sum that is not finite is so on every rank, so no reduction of the flag is needed.
      const TensorId whole = add_value("squared_norm.reduced");
      push(OpKind::all_reduce, {sum}, {whole}, CollectiveParams{step.split, Reduction::sum});
      graph_.ops.back().stream = Stream::world;
      sum = whole;
    }
    ClipParams clip{step.clip_limit};
    clip.loss_scaling = step.scales;
    push(OpKind::clip_factor, {sum, scalars_}, {scalars_}, clip);
    update(gradients_, {}, false);
  }

  // ---- one op of each kind over flat copies, one set for each attribute group ----

  void coalesced(const Step& step, const std::vector<Op>& ops) {
    squares_ = add_arena_like("squares");
    scaled_ = step.clip_limit > 0 ? add_arena_like("scaled_gradients") : gradients_;
    std::vector<TensorId> sums;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      push(OpKind::coalesce, {gradients_}, {gradients_}, flat(g));
      push(OpKind::coalesce, {updated_}, {updated_}, flat(g));
    }
    std::size_t next = 0;
    // The finite check and what follows from it.
    for (; next < ops.size() && !measures_norm(ops[next].kind); ++next)
      graph_.ops.push_back(ops[next]);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].clip) continue;
      sums.push_back(add_value("squared_norm.group" + std::to_string(g)));
      push(OpKind::square, {gradients_}, {squares_}, flat(g));
      push(OpKind::reduce_sum, {squares_}, {sums.back()}, flat(g));
    }
    while (measures_norm(ops[next].kind) && ops[next].block) ++next;
    for (; next < ops.size() && !ops[next].block; ++next) {  // sum, all-reduces, factor
      graph_.ops.push_back(ops[next]);
      if (ops[next].kind != OpKind::reduce_sum) continue;
      graph_.ops.back().inputs = sums;
      if (sums.empty())
        graph_.ops.back() = step_op(OpKind::fill, {}, ops[next].outputs, FillParams{0});
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) scale_and_update(step, g);
  }

  void scale_and_update(const Step& step, std::size_t g) {
    const bool scales = step.clip_limit > 0 && groups_[g].clip;
    if (scales) {
      push(OpKind::scale, {gradients_, *clip_element()}, {scaled_}, flat(g));
    }
    update(scales ? scaled_ : gradients_, std::int64_t(g), true);
  }

  static bool measures_norm(OpKind kind) {
    return kind == OpKind::square || kind == OpKind::squared_norm || kind == OpKind::reduce_sum;
  }

  std::optional<TensorId> clip_element() const {
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      if (graph_.tensors[i].element == std::int64_t(Scalar::clip)) return TensorId(i);
    }
    return std::nullopt;
  }

  static FlatParams flat(std::size_t g) {
    FlatParams params;
    params.group = std::int64_t(g);
    return params;
  }

  // ---- the update ----

  void update(TensorId gradients, std::optional<std::int64_t> group, bool clipped) {
    const auto with = [&](auto params) {
      params.group = group;
      params.clipped = clipped;
      return params;
    };
    if (optimizer().kind == OptimizerKind::sgd) {
      push(OpKind::sgd, {updated_, gradients, first_, scalars_}, {updated_, first_},
           with(sgd_params(optimizer())));
      return;
    }
    if (optimizer().kind == OptimizerKind::adamw) return update_adamw(gradients, with);
    Tensor pairs = step_tensor(group ? fmt::format("tensor_norms{}", *group) : "tensor_norms",
                               {2 * tensors()});
    pairs.arena = true;
    const TensorId norms = graph_.add(std::move(pairs));
    const LambParams params = with(lamb_params(optimizer()));
    push(OpKind::lamb_norms, {updated_, gradients, first_, *second_, scalars_},
         {first_, *second_, norms}, params);
    if (context_.strategy.mp > 1) {
      push(OpKind::all_reduce, {norms}, {norms},
           CollectiveParams{Group{{Axis::mp}}, Reduction::sum});
      graph_.ops.back().stream = Stream::world;
    }
    push(OpKind::lamb, {updated_, first_, *second_, norms, scalars_}, {updated_}, params);
  }

  template <class With>
  void update_adamw(TensorId gradients, With with) {
    AdamParams params = with(adam_params(optimizer()));
    if (context_.strategy.precision.stochastic_rounding) {
      params.stochastic = true;
      params.seed = context_.job.seed;
    }
    if (context_.strategy.precision.moments != MomentType::block8) {
      push(OpKind::adamw, {updated_, gradients, first_, *second_, scalars_},
           {updated_, first_, *second_}, params);
      return;
    }
    const std::int64_t scales = 2 * moment_blocks(graph_.at(first_).shape[0]);
    const TensorId scale =
        add_step_arena(graph_, "moment_scales", TensorRole::optimizer_state, scales);
    push(OpKind::adamw_8bit, {updated_, gradients, first_, *second_, scale, scalars_},
         {updated_, first_, *second_, scale}, params);
  }

  std::int64_t tensors() const {
    std::int64_t count = 0;
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.role == TensorRole::parameter && tensor.block && !tensor.tied_to)
        count += graph_.at(*tensor.block).count;
    }
    return count;
  }

  const Optimizer& optimizer() const { return context_.job.optimizer; }
  TensorId add_value(std::string name) { return graph_.add(step_tensor(std::move(name), {1})); }
  TensorId add_arena_like(const char* name) {
    return add_step_arena(graph_, name, TensorRole::activation, graph_.at(gradients_).shape[0]);
  }
  void push(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
            OpParams params = {}) {
    graph_.ops.push_back(step_op(kind, std::move(inputs), std::move(outputs), std::move(params)));
  }

  Graph& graph_;
  const PassContext& context_;
  const TensorId gradients_, scalars_;
  const std::vector<AttributeGroup> groups_;
  TensorId updated_, first_, squares_, scaled_;
  std::optional<TensorId> second_;
};

}  // namespace

bool flatten_optimizer(Graph& graph, const PassContext& context) {
  const auto gradients = updating_gradients(graph);
  if (!gradients || context.strategy.optimizer.flatten == Flatten::none) return false;
  Flattener(graph, context, *gradients).run();
  return true;
}

}  // namespace plimsoll
