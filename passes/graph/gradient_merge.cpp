// Gradients of one micro-batch get memory of their own and are merged into the step's.
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "passes/graph/passes.h"
#include "passes/graph/step_ops.h"

namespace plimsoll {

namespace {

Op backward_op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
               std::optional<BlockId> block, OpParams params = {}) {
  Op op;
  op.kind = kind;
  op.phase = Phase::backward;
  op.block = block;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.params = std::move(params);
  return op;
}

/// A gradient that an op of some block writes.
using Written = std::pair<BlockId, TensorId>;

class GradientMerger {
 public:
  GradientMerger(Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  bool run() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      for (TensorId id : graph_.ops[i].outputs) {
        if (is_gradient(graph_.ops[i], id)) last_[{*graph_.ops[i].block, id}] = i;
      }
    }
    if (last_.empty()) return false;
    context_.strategy.gradients.merge == GradientMerge::tensor ? by_tensor() : fused();
    return true;
  }

 private:
  bool is_gradient(const Op& op, TensorId id) const {
    return op.block && op.phase != Phase::optimizer && graph_.at(id).gradient_of.has_value();
  }

  /// Returns the type to which the block casts the parameter, or the parameter's own type.
  DType type_of(const Written& written) const {
    const TensorId parameter = *graph_.at(written.second).gradient_of;
    for (const Op& op : graph_.ops) {
      const bool casts = op.kind == OpKind::cast && op.inputs[0] == parameter;
      if (casts && op.block == written.first) return graph_.at(op.outputs[0]).dtype;
    }
    return graph_.at(parameter).dtype;
  }

  // ---- tensor by tensor: nothing outlives the routine ----

  void by_tensor() {
    std::map<Written, TensorId> own;  // the micro-batch's
    std::vector<Op> ops;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      Op op = graph_.ops[i];
      std::vector<Written> complete;
      for (TensorId& id : op.outputs) {
        if (!is_gradient(op, id)) continue;
        const Written written{*op.block, id};
        const auto [found, fresh] = own.try_emplace(written, id);
        if (fresh) begin(op, found->second = add_own(written), ops);
        if (last_.at(written) == i) complete.push_back(written);
        id = found->second;
      }
      ops.push_back(std::move(op));
      for (const Written& written : complete) merge(own.at(written), written, ops);
    }
    graph_.ops = std::move(ops);
  }

  TensorId add_own(const Written& written) {
    Tensor tensor = graph_.at(written.second);
    tensor.name += ".micro_batch";
    if (graph_.at(written.first).variant_of) tensor.name += ".variant";
    tensor.dtype = type_of(written);
    tensor.role = TensorRole::activation;
    tensor.block = written.first;
    tensor.gradient_of.reset();
    return graph_.add(std::move(tensor));
  }

  /// A product can overwrite its gradient; other ops add to it, so it is zeroed first.
  static void begin(Op& op, TensorId own, std::vector<Op>& ops) {
    if (auto* params = std::get_if<MatmulParams>(&op.params)) {
      params->accumulate = false;
    } else {
      ops.push_back(backward_op(OpKind::fill, {}, {own}, op.block, FillParams{0}));
    }
  }

  void merge(TensorId own, const Written& written, std::vector<Op>& ops) {
    const auto [block, gradient] = written;
    if (graph_.at(own).dtype != graph_.at(gradient).dtype) {
      Tensor cast = graph_.at(own);
      cast.dtype = graph_.at(gradient).dtype;
      cast.name += "." + std::string(to_text(cast.dtype));
      const TensorId addend = graph_.add(std::move(cast));
      ops.push_back(backward_op(OpKind::cast, {own}, {addend}, block));
      own = addend;
    }
    ops.push_back(backward_op(OpKind::add, {gradient, own}, {gradient}, block));
  }

  // ---- fused: one arena for each type ----

  void fused() {
    const TensorId merged = *gradient_arena(graph_);
    std::map<TensorId, TensorId> own;  // by gradient
    std::set<DType, std::greater<>> types;
    for (const auto& [written, last] : last_) {
      const auto [found, fresh] = own.try_emplace(written.second, written.second);
      if (!fresh) continue;
      Tensor tensor = graph_.at(written.second);
      tensor.name += ".micro_batch";
      types.insert(tensor.dtype = type_of(written));
      found->second = graph_.add(std::move(tensor));
    }
    overwrite();
    for (Op& op : graph_.ops) {
      for (TensorId& id : op.outputs) {
        if (is_gradient(op, id)) id = own.at(id);
      }
    }
    std::vector<Op> ops;
    for (const DType type : types) merge_arena(type, merged, ops);
    auto step = graph_.ops.begin();
    while (step->phase != Phase::optimizer) ++step;
    graph_.ops.insert(step, ops.begin(), ops.end());
  }

  /// A product that writes a gradient first overwrites it, as in `begin`; but not where another
  /// block adds to the same gradient (a tied table), since either may come first on its stage.
  void overwrite() {
    std::map<TensorId, std::set<BlockId>> homes;
    for (const auto& [written, last] : last_) {
      homes[written.second].insert(graph_.at(written.first).variant_of.value_or(written.first));
    }
    std::set<Written> begun;
    for (Op& op : graph_.ops) {
      for (const TensorId id : op.outputs) {
        if (!is_gradient(op, id) || !begun.insert({*op.block, id}).second) continue;
        auto* params = std::get_if<MatmulParams>(&op.params);
        if (params && homes.at(id).size() == 1) params->accumulate = false;
      }
    }
  }

  /// Merges an arena. In the Graph it is as large as the step's. A Program has only the elements of
  /// this type, and zeroes only those that no op overwrites (passes/schedule/merged_gradients.h).
  void merge_arena(DType type, TensorId merged, std::vector<Op>& ops) {
    const std::int64_t count = graph_.at(merged).shape[0];
    const DType sum = graph_.at(merged).dtype;
    const std::string name = "micro_batch_gradients." + std::string(to_text(type));
    const TensorId arena = add_step_arena(graph_, name, TensorRole::gradient, count, type);
    TensorId addend = arena;
    ops.push_back(backward_op(OpKind::fill, {}, {arena}, {}, FillParams{0}));
    if (type != sum) {
      addend = add_step_arena(graph_, name + ".cast", TensorRole::activation, count, sum);
      ops.push_back(backward_op(OpKind::cast, {arena}, {addend}, {}));
    }
    ops.push_back(backward_op(OpKind::add, {merged, addend}, {merged}, {}));
  }

  Graph& graph_;
  const PassContext& context_;
  std::map<Written, std::size_t> last_;  ///< op that writes it last
};

}  // namespace

bool gradient_merge(Graph& graph, const PassContext& context) {
  if (context.strategy.gradients.merge == GradientMerge::direct) return false;
  return GradientMerger(graph, context).run();
}

}  // namespace plimsoll
