// Tokens are split over mp between the split layers.
#include <map>
#include <set>

#include "base/error.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"

namespace plimsoll {

namespace {

/// Gives each mp rank consecutive tokens to work on wherever tensor_parallel left whole ones.
/// Between the two it puts all_gather where all tokens are needed, reduce_scatter where partial
/// sums of all tokens arise, and own_part where a whole value is there already.
class TokenSplitter {
 public:
  /// `experts_apart`: what experts read and give is left whole for expert_parallel, which splits
  /// it.
  TokenSplitter(Graph& graph, std::int64_t degree, bool experts_apart)
      : graph_(graph), degree_(degree), experts_apart_(experts_apart) {}

  void run() {
    const std::vector<std::vector<Op>> ops = ops_by_block(graph_);
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b) {
      if (const auto input = graph_.blocks[b].input) split(*input);
      kind_ = graph_.blocks[b].kind;
      const std::vector<Op>& of_block = ops[b];
      for (const Op& op : of_block) rewrite(op, of_block);
      Block& block = graph_.blocks[b];
      if (block.output && !is_split(*block.output)) {
        block.output = part_of(of_block.back(), *block.output);
      }
    }
    out_.insert(out_.end(), ops.back().begin(), ops.back().end());
    graph_.ops = std::move(out_);
  }

 private:
  bool is_split(TensorId id) const { return split_.contains(id); }

  void split(TensorId id) {
    Tensor& tensor = graph_.at(id);
    INVARIANT(!tensor.split && tensor.shape.at(0) % degree_ == 0,
              tensor.name + " does not split by tokens");
    tensor.shape[0] /= degree_;
    tensor.split = Split{0, Axis::mp, degree_};
    split_.insert(id);
  }

  TensorId part_of(const Op& near, TensorId whole) {
    const auto [found, fresh] = parts_.try_emplace(whole, whole);
    if (fresh) {
      found->second = add_like(graph_, whole, ".part");
      split(found->second);
      out_.push_back(op_near(near, OpKind::own_part, {whole}, {found->second}));
    }
    return found->second;
  }

  TensorId whole_of(const Op& near, TensorId part) {
    const auto [found, fresh] = wholes_.try_emplace(part, part);
    if (fresh) {
      found->second = add_like(graph_, part, ".gathered");
      Tensor& whole = graph_.at(found->second);
      whole.split.reset();
      whole.shape[0] *= degree_;
      out_.push_back(op_near(near, OpKind::all_gather, {part}, {found->second},
                             CollectiveParams{Group{{Axis::mp}}}, Stream::mp));
    }
    return found->second;
  }

  /// Ops that need to know which token of its sequence each row is.
  bool needs_whole(OpKind kind) const {
    return kind == OpKind::position_add || kind == OpKind::token_type_add ||
           kind == OpKind::gather_rows || kind == OpKind::place_choices ||
           kind == OpKind::limit_choices || kind == OpKind::rotary ||
           kind == OpKind::all_gather ||  // of choices over cp
           (experts_apart_ && kind == OpKind::dispatch_rows);
  }

  /// Returns whether partial sums can go straight to the ranks that work on them: they are sums of
  /// tokens, and no op reads them whole. Sums of the loss cannot, since all ranks need them.
  bool scatters(const Op& reduction, const std::vector<Op>& ops) const {
    for (const Op& op : ops) {
      for (TensorId id : op.inputs) {
        if (id == reduction.outputs[0] && needs_whole(op.kind)) return false;
      }
      const bool writes = op.outputs[0] == reduction.inputs[0];
      const bool of_tokens = op.kind == OpKind::matmul || op.kind == OpKind::embedding ||
                             op.kind == OpKind::combine_rows;
      if (writes && !of_tokens) return false;
    }
    return true;
  }

  void rewrite(Op op, const std::vector<Op>& ops) {
    rename(op.inputs, combined_);
    if (op.kind == OpKind::reduce_from_group && scatters(op, ops)) {
      op.kind = OpKind::reduce_scatter;
      split(op.outputs[0]);
    } else if (op.kind == OpKind::copy_to_group || needs_whole(op.kind)) {
      for (TensorId& id : op.inputs) {
        if (is_split(id)) id = whole_of(op, id);
      }
    } else if (works_on_tokens(op)) {
      for (TensorId& id : op.inputs) {
        const TensorRole role = graph_.at(id).role;
        const bool whole = input_is_counts(op, id);
        if (is_one_parameter(graph_.at(id))) {
          if (role == TensorRole::parameter) graph_.at(id).gradient_group = Group{{Axis::mp}};
        } else if (!whole && role != TensorRole::scalar && !is_split(id)) {
          id = part_of(op, id);
        }
      }
      for (TensorId id : op.outputs) {
        if (graph_.at(id).role == TensorRole::scalar) {  // each rank counts its own tokens
          graph_.at(id).gradient_group = Group{{Axis::mp}};
        } else {
          split(id);
        }
      }
    }
    if (experts_apart_ && op.kind == OpKind::combine_rows) {
      const TensorId whole = op.outputs[0];
      out_.push_back(op);
      combined_[whole] = part_of(op, whole);
      return;
    }
    out_.push_back(std::move(op));
  }

  /// The choices of whole sequences are no rows of tokens.
  static bool input_is_counts(const Op& op, TensorId id) {
    return op.kind == OpKind::balance_experts && id == op.inputs[2];
  }

  /// Returns whether an op works row by row, so that each rank can do its own rows. Ops that read
  /// such rows do, and in the embedding the ops that follow the tables.
  bool works_on_tokens(const Op& op) const {
    for (TensorId id : op.inputs) {
      if (is_split(id)) return true;
    }
    return kind_ == BlockKind::embedding && !op.inputs.empty() && op.kind != OpKind::embedding &&
           op.kind != OpKind::reduce_from_group;
  }

  Graph& graph_;
  std::int64_t degree_;
  bool experts_apart_;
  BlockKind kind_ = BlockKind::layer;
  std::vector<Op> out_;
  std::set<TensorId> split_;
  std::map<TensorId, TensorId> parts_, wholes_;
  std::map<TensorId, TensorId> combined_;  ///< parts of what experts give, which all ops read
};

}  // namespace

bool sequence_parallel(Graph& graph, const PassContext& context) {
  if (!context.strategy.tokens.sequence_parallel || context.strategy.mp == 1) return false;
  TokenSplitter(graph, context.strategy.mp, experts_apart(context.strategy)).run();
  return true;
}

}  // namespace plimsoll
