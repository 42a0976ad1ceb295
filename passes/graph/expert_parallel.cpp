// Experts are shared out over ranks.
//
// The ranks of a stage form a second grid for experts: etp ranks share each expert, ep ranks share
// out the experts, edp ranks have the same ones (Megatron-LM core/parallel_state.py; Liu et al.
// 2025, arXiv 2504.14960, section 3). Tokens are on other ranks than the experts that they choose.
//
// all_gather: all ranks of a group of etp x ep get the group's tokens, pick those that chose their
// experts, and scatter the sums (Megatron-LM core/transformer/moe/token_dispatcher.py,
// MoEAllGatherTokenDispatcher).
// all_to_all: each rank sorts its choices by expert and sends each row to the rank of its expert,
// and the results back (GShard, Lepikhin et al. 2020, arXiv 2006.16668, section 3.2; Megatron-LM's
// MoEAlltoAllTokenDispatcher). Ranks tell each other before how many rows come.
//
// How many rows a rank gets depends on the router. Its memory has a limit
// (Strategy::expert_rows_percent), and a capacity limits it, too.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/graph/passes.h"

namespace plimsoll {

namespace {

/// The ops of one layer's experts.
struct ExpertOps {
  const Op *place = nullptr, *dispatch = nullptr, *up = nullptr, *activation = nullptr,
           *down = nullptr, *combine = nullptr;
};

class ExpertSplitter {
 public:
  ExpertSplitter(Graph& graph, const PassContext& context)
      : graph_(graph),
        strategy_(context.strategy),
        experts_(*context.job.experts),
        capacity_(expert_capacity(context.job)),
        sequence_(context.job.sequence),
        etp_(experts_tensor_parallel(context.strategy)) {}

  void run() {
    const Grid whole = grid_of(strategy_);
    for (const Axis axis : {Axis::etp, Axis::ep, Axis::edp})
      graph_.grid.degree[std::size_t(axis)] = whole[axis];
    ops_ = std::move(graph_.ops);
    for (const Op& op : ops_) {
      if (op.kind == OpKind::all_gather) gathered_.emplace(op.outputs[0], op.inputs[0]);
    }
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b) rewrite(BlockId(b));
    for (const Op& op : ops_) {
      if (!op.block) out_.push_back(op);
    }
    graph_.ops = std::move(out_);
    remove_unread_gathers();
    remove_unused_tensors(graph_);
  }

 private:
  ExpertOps experts_of(BlockId block) const {
    ExpertOps found;
    for (const Op& op : ops_) {
      if (op.block != block) continue;
      if (op.kind == OpKind::place_choices) found.place = &op;
      if (op.kind == OpKind::dispatch_rows) found.dispatch = &op;
      if (op.kind == OpKind::combine_rows) found.combine = &op;
      if (op.kind == OpKind::grouped_matmul) (found.up ? found.down : found.up) = &op;
      const bool gated = op.kind == OpKind::swiglu || op.kind == OpKind::geglu;
      if (gated && op.inputs.size() == 2) found.activation = &op;
    }
    return found;
  }

  void rewrite(BlockId block) {
    const ExpertOps experts = experts_of(block);
    const bool has_experts = experts.place != nullptr;
    std::map<TensorId, TensorId> renamed;  // what own_part took of the combined rows
    for (const Op& op : ops_) {
      if (op.block != block) continue;
      const bool taken = has_experts && (&op == experts.up || &op == experts.activation ||
                                         &op == experts.down || &op == experts.dispatch);
      if (taken) continue;
      if (has_experts && &op == experts.place && !counts_are_read(op)) continue;
      if (has_experts && &op == experts.combine) {
        renamed[op.outputs[0]] = compute(experts);
        continue;
      }
      if (op.kind == OpKind::own_part && renamed.contains(op.inputs[0])) {
        renamed[op.outputs[0]] = renamed.at(op.inputs[0]);
        continue;
      }
      Op& copy = out_.emplace_back(op);
      for (TensorId& id : copy.inputs) {
        if (const auto found = renamed.find(id); found != renamed.end()) id = found->second;
      }
    }
    Block& definition = graph_.at(block);
    if (definition.output && renamed.contains(*definition.output))
      definition.output = renamed.at(*definition.output);
  }

  bool counts_are_read(const Op& place) const {
    return std::ranges::any_of(ops_, [&](const Op& op) {
      return std::ranges::find(op.inputs, place.outputs[2]) != op.inputs.end();
    });
  }

  // ---- pieces ----

  TensorId add_like(TensorId id, const std::string& suffix, Shape shape) {
    Tensor tensor = graph_.at(id);
    tensor.name += suffix;
    tensor.shape = std::move(shape);
    tensor.split.reset();
    return graph_.add(std::move(tensor));
  }

  Op& push(const Op& near, OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           OpParams params = {}) {
    Op op;
    op.kind = kind;
    op.phase = near.phase;
    op.block = near.block;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.params = std::move(params);
    if (communicates(kind) || kind == OpKind::copy_to_group) op.stream = Stream::experts;
    return out_.emplace_back(std::move(op));
  }

  /// Returns the part that this rank has of a value that sequence_parallel gathered.
  TensorId own(TensorId id) const {
    const auto found = gathered_.find(id);
    return found == gathered_.end() ? id : found->second;
  }

  Group group() const {
    Group result;
    if (etp_ > 1) result.axes.add(Axis::etp);
    if (strategy_.ep > 1) result.axes.add(Axis::ep);
    return result;
  }

  TensorId all(const Op& near, TensorId id) {
    Shape shape = graph_.at(id).shape;
    shape[0] *= etp_ * strategy_.ep;
    const TensorId whole = add_like(id, ".of_group", std::move(shape));
    push(near, OpKind::all_gather, {id}, {whole}, CollectiveParams{group()});
    return whole;
  }

  /// Splits the experts' parameters, and makes edp ranks sum their gradients.
  void split_parameter(TensorId id, std::int64_t dim) {
    Tensor& weight = graph_.at(id);
    weight.split.reset();
    if (etp_ > 1) {
      weight.shape[std::size_t(dim)] /= etp_;
      weight.split = Split{dim, Axis::etp, etp_};
    } else if (strategy_.ep > 1) {
      weight.shape[0] /= strategy_.ep;
      weight.split = Split{0, Axis::ep, strategy_.ep};
    }
    if (graph_.grid[Axis::edp] > 1) weight.gradient_group = Group{{Axis::edp}};
  }

  /// Rows for which a rank has memory, and how many of them are used.
  struct RowLimit {
    std::int64_t rows = 0;
    double filled = 1;
  };
  /// `tokens` are those from which the rank gets rows. Limits are rounded up for one sequence of
  /// the micro-batch, so that rows grow by as many with each: bounds of the search extend few
  /// sequences to many (planner/bounds/micro_batch_program.h).
  RowLimit row_limit(std::int64_t tokens) const {
    const std::int64_t ep = strategy_.ep, of_each = tokens / strategy_.micro_batch;
    const std::int64_t choices = of_each * experts_.chosen;
    const std::int64_t even = (choices + ep - 1) / ep;
    std::int64_t rows = choices;
    if (ep > 1) rows = std::min(rows, (even * strategy_.expert_rows_percent + 99) / 100);
    if (capacity_ > 0) {
      const std::int64_t sequences = (of_each + sequence_ - 1) / sequence_;
      rows = std::min(rows, experts_.count / ep * sequences * capacity_);
    }
    const double used = double(choices) / double(ep) * (ep > 1 ? experts_.load : 1);
    return {rows * strategy_.micro_batch, std::min(1.0, used / double(rows))};
  }

  /// Lets a value [m,...] of the experts have these rows.
  void resize(TensorId id, const RowLimit& limit) {
    Tensor& tensor = graph_.at(id);
    tensor.shape[0] = limit.rows;
    tensor.filled = limit.filled;
    tensor.split.reset();
  }

  /// The experts themselves, on rows that are there.
  void multiply(const ExpertOps& ops, TensorId rows, TensorId weights, TensorId ends,
                const RowLimit& limit) {
    split_parameter(ops.up->inputs[1], 3);
    split_parameter(ops.down->inputs[1], 1);
    for (const TensorId id : {ops.up->outputs[0], ops.activation->outputs[0], ops.down->outputs[0]})
      resize(id, limit);
    graph_.at(ops.up->outputs[0]).shape.back() /= etp_;
    graph_.at(ops.activation->outputs[0]).shape.back() /= etp_;
    out_.push_back(*ops.up);
    out_.back().inputs = {rows, ops.up->inputs[1], ends};
    out_.push_back(*ops.activation);
    out_.back().inputs[1] = weights;
    out_.push_back(*ops.down);
    out_.back().inputs[2] = ends;
  }

  /// Emits the experts of a layer. Returns their sums for this rank's tokens.
  TensorId compute(const ExpertOps& ops) {
    const bool sends = strategy_.expert_dispatch == ExpertDispatch::all_to_all && strategy_.ep > 1;
    return sends ? compute_sent(ops) : compute_gathered(ops);
  }

  TensorId compute_gathered(const ExpertOps& ops) {
    const Op &place = *ops.place, &dispatch = *ops.dispatch;
    const bool alone = etp_ * strategy_.ep == 1;
    const TensorId x = own(dispatch.inputs[0]), weights = own(dispatch.inputs[2]),
                   chosen = own(place.inputs[0]);
    const TensorId all_x = alone ? x : all(dispatch, x),
                   all_weights = alone ? weights : all(dispatch, weights),
                   all_chosen = alone ? chosen : all(place, chosen);
    const std::int64_t tokens = graph_.at(all_x).shape[0], k = experts_.chosen;
    const RowLimit limit = row_limit(tokens);
    const Placed placed = push_place(place, all_chosen, {tokens, k}, limit.rows, strategy_.ep);
    const TensorId routed = dispatch.outputs[0], row_weights = dispatch.outputs[1];
    resize(routed, limit);
    resize(row_weights, limit);
    // Each rank gives a part of the gradients of the tokens and weights.
    const auto copied = [&](TensorId id) {
      if (alone) return id;
      const TensorId copy = add_like(id, ".copied", graph_.at(id).shape);
      push(dispatch, OpKind::copy_to_group, {id}, {copy}, CollectiveParams{group()});
      return copy;
    };
    const TensorId copied_x = copied(all_x), copied_weights = copied(all_weights);
    push(dispatch, OpKind::dispatch_rows, {copied_x, placed.rows, copied_weights},
         {routed, row_weights});
    multiply(ops, routed, row_weights, placed.ends, limit);
    const TensorId mixed = add_sums(ops, x);
    const TensorId sums = alone ? mixed : add_like(mixed, ".partial", graph_.at(all_x).shape);
    push(*ops.combine, OpKind::combine_rows, {ops.down->outputs[0], placed.rows}, {sums});
    if (!alone)
      push(*ops.combine, OpKind::reduce_scatter, {sums}, {mixed}, CollectiveParams{group()});
    return mixed;
  }

  TensorId compute_sent(const ExpertOps& ops) {
    const Op &place = *ops.place, &dispatch = *ops.dispatch;
    const TensorId x = own(dispatch.inputs[0]), weights = own(dispatch.inputs[2]);
    // A capacity drops choices of whole sequences.
    const TensorId chosen = capacity_ > 0 ? place.inputs[0] : own(place.inputs[0]);
    const std::int64_t tokens = graph_.at(x).shape[0], k = experts_.chosen, ep = strategy_.ep;
    const Placed placed = push_place(place, chosen, {tokens, k}, tokens * k, 1);
    const TensorId routed = dispatch.outputs[0], row_weights = dispatch.outputs[1];
    const RowLimit sent{tokens * k, 1};
    resize(routed, sent);
    resize(row_weights, sent);
    push(dispatch, OpKind::dispatch_rows, {x, placed.rows, weights}, {routed, row_weights});
    const CollectiveParams params{group()};
    const TensorId all_ends = add_like(placed.ends, ".of_group", {ep, experts_.count});
    push(place, OpKind::all_gather, {placed.ends}, {all_ends}, params);
    const RowLimit limit = row_limit(tokens * ep);
    const auto exchanged = [&](TensorId from) {
      const TensorId to = add_like(from, ".received", graph_.at(from).shape);
      resize(to, limit);
      push(dispatch, OpKind::exchange_rows, {from, all_ends}, {to}, params);
      return to;
    };
    const TensorId received_weights = exchanged(row_weights), received = exchanged(routed);
    const TensorId ends = add_like(placed.ends, ".received", {experts_.count / ep});
    push(place, OpKind::received_ends, {all_ends}, {ends},
         PlaceParams{.sequence = sequence_, .parts = ep, .rows = limit.rows});
    multiply(ops, received, received_weights, ends, limit);
    const TensorId returned = add_like(routed, ".returned", graph_.at(routed).shape);
    push(*ops.combine, OpKind::return_rows, {ops.down->outputs[0], all_ends}, {returned}, params);
    const TensorId mixed = add_sums(ops, x);
    push(*ops.combine, OpKind::combine_rows, {returned, placed.rows}, {mixed});
    return mixed;
  }

  /// The experts' sums for the tokens of x.
  TensorId add_sums(const ExpertOps& ops, TensorId x) {
    const TensorId sums = add_like(ops.combine->outputs[0], ".own", graph_.at(x).shape);
    graph_.at(sums).split = graph_.at(x).split;
    return sums;
  }

  struct Placed {
    TensorId rows, ends;
  };
  /// Rows of 1/parts of the experts. `shape` is that of the rows, of all tokens or of a part.
  Placed push_place(const Op& place, TensorId chosen, Shape shape, std::int64_t most,
                    std::int64_t parts) {
    const std::int64_t tokens = graph_.at(chosen).shape[0];
    const bool whole = tokens % sequence_ == 0;
    INVARIANT(whole || capacity_ == 0, "a capacity is one of whole sequences");
    const std::int64_t sequence = whole ? sequence_ : tokens;
    const bool of_part = shape[0] < tokens;
    const Placed placed{add_like(place.outputs[0], ".own", std::move(shape)),
                        add_like(place.outputs[1], ".own", {experts_.count / parts})};
    if (of_part)
      graph_.at(placed.rows).split = Split{0, Axis::mp, tokens / graph_.at(placed.rows).shape[0]};
    const TensorId counts = add_like(place.outputs[2], ".own", {tokens / sequence, experts_.count});
    push(place, OpKind::place_choices, {chosen}, {placed.rows, placed.ends, counts},
         PlaceParams{.sequence = sequence, .capacity = capacity_, .parts = parts, .rows = most});
    return placed;
  }

  /// sequence_parallel gathered what only the ops of before read.
  void remove_unread_gathers() {
    std::set<TensorId> read;
    for (const Op& op : graph_.ops) read.insert(op.inputs.begin(), op.inputs.end());
    for (const Block& block : graph_.blocks) {
      if (block.output) read.insert(*block.output);
    }
    std::erase_if(graph_.ops, [&](const Op& op) {
      return op.kind == OpKind::all_gather && !read.contains(op.outputs[0]);
    });
  }

  Graph& graph_;
  const Strategy& strategy_;
  const Experts& experts_;
  std::int64_t capacity_, sequence_, etp_;
  std::vector<Op> ops_, out_;
  std::map<TensorId, TensorId> gathered_;  // the part, by the whole
};

}  // namespace

bool expert_parallel(Graph& graph, const PassContext& context) {
  if (!context.job.experts || !experts_apart(context.strategy)) return false;
  ExpertSplitter(graph, context).run();
  return true;
}

}  // namespace plimsoll
