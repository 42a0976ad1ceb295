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
// MoEAlltoAllTokenDispatcher). Ranks tell each other before how many rows come. Ranks of etp then
// get each other's rows, and scatter the sums before they go back, as that dispatcher does.
//
// With overlap_shared_experts the shared experts' first product is issued behind the exchange of
// rows, and the second one behind the exchange back (Megatron-LM
// core/transformer/moe/shared_experts.py).
//
// How many rows a rank gets depends on the router. Its memory has a limit (rows_room()), and a
// capacity limits it, too.
#include <algorithm>
#include <map>
#include <set>

#include "graph/op_table.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/strategy/expert_rows.h"

namespace plimsoll {

namespace {

/// The ops of one layer's experts.
struct ExpertOps {
  const Op *place = nullptr, *dispatch = nullptr, *combine = nullptr;
  std::vector<const Op*> of_rows;  ///< the experts themselves: between dispatch and combine
};

class ExpertSplitter {
 public:
  ExpertSplitter(Graph& graph, const PassContext& context)
      : graph_(graph),
        strategy_(context.strategy),
        experts_(*context.job.experts),
        capacity_(expert_capacity(context.job)),
        micro_batch_(context.strategy.micro_batch),
        etp_(experts_tensor_parallel(context.strategy)),
        room_percent_(rows_room(context.job, context.framework, context.strategy).percent) {
    const double choices = double(context.job.sequence * experts_.chosen);
    if (capacity_ > 0) kept_ = std::min(1.0, double(experts_.count * capacity_) / choices);
  }

  void run() {
    const Grid whole = grid_of(strategy_);
    for (const Axis axis : {Axis::etp, Axis::ep, Axis::edp})
      graph_.grid.degree[std::size_t(axis)] = whole[axis];
    for (const Op& op : graph_.ops) {
      if (op.kind == OpKind::all_gather) gathered_.emplace(op.outputs[0], op.inputs[0]);
    }
    const std::vector<std::vector<Op>> ops = ops_by_block(graph_);
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b) {
      const std::size_t begin = out_.size();
      rewrite(BlockId(b), ops[b]);
      if (strategy_.experts.overlap_shared) overlap_shared(begin);
    }
    out_.insert(out_.end(), ops.back().begin(), ops.back().end());
    graph_.ops = std::move(out_);
    remove_unread_gathers();
    remove_unused_tensors(graph_);
  }

 private:
  static ExpertOps experts_of(const std::vector<Op>& ops) {
    ExpertOps found;
    std::set<TensorId> rows;
    for (const Op& op : ops) {
      if (op.kind == OpKind::place_choices) found.place = &op;
      if (op.kind == OpKind::dispatch_rows) found.dispatch = &op;
      const bool reads_rows =
          std::ranges::any_of(op.inputs, [&](TensorId id) { return rows.contains(id); });
      if (reads_rows && op.kind == OpKind::combine_rows) {
        found.combine = &op;
        continue;
      }
      if (reads_rows) found.of_rows.push_back(&op);
      if (reads_rows || &op == found.dispatch) rows.insert(op.outputs.begin(), op.outputs.end());
    }
    return found;
  }

  void rewrite(BlockId block, const std::vector<Op>& ops) {
    const ExpertOps experts = experts_of(ops);
    const bool has_experts = experts.place != nullptr;
    std::map<TensorId, TensorId> renamed;  // what own_part took of the combined rows
    for (const Op& op : ops) {
      const bool of_rows = std::ranges::find(experts.of_rows, &op) != experts.of_rows.end();
      const bool taken =
          has_experts && (of_rows || &op == experts.place || &op == experts.dispatch);
      if (taken) continue;
      if (has_experts && &op == experts.combine) {
        renamed[op.outputs[0]] = compute(experts);
        continue;
      }
      if (op.kind == OpKind::own_part && renamed.contains(op.inputs[0])) {
        renamed[op.outputs[0]] = renamed.at(op.inputs[0]);
        continue;
      }
      // A rank needs the kept choices of its own tokens alone.
      if (op.kind == OpKind::limit_choices && op.outputs.size() > 1)
        graph_.at(op.outputs[1]).shape[0] = graph_.at(own(experts.dispatch->inputs[0])).shape[0];
      rename(out_.emplace_back(op).inputs, renamed);
    }
    Block& definition = graph_.at(block);
    if (definition.output && renamed.contains(*definition.output))
      definition.output = renamed.at(*definition.output);
  }

  // ---- shared experts ----

  /// Moves the shared experts of a block, whose ops begin at `begin`, behind the communications
  /// that bring rows to experts and back.
  void overlap_shared(std::size_t begin) {
    const auto first = out_.begin() + std::ptrdiff_t(begin);
    const auto is_kind = [](OpKind kind) {
      return [kind](const Op& op) { return op.kind == kind; };
    };
    const auto experts = std::find_if(first, out_.end(), is_kind(OpKind::grouped_matmul));
    const auto combine = std::find_if(first, out_.end(), is_kind(OpKind::combine_rows));
    if (experts == out_.end()) return;
    std::vector<Op> before(first, experts), between(experts, combine), behind, up, down;
    const std::set<TensorId> shared = shared_values(combine);
    for (auto op = combine; op != out_.end(); ++op) {
      if (!shared.contains(op->outputs[0])) {
        behind.push_back(*op);
        continue;
      }
      const bool activated = std::ranges::any_of(up, [](const Op& one) {
        return one.kind == OpKind::swiglu || one.kind == OpKind::geglu;
      });
      (activated ? down : up).push_back(*op);
    }
    // all_gather: what goes back are sums, behind combine_rows.
    if (behind.size() > 1 && behind[1].kind == OpKind::reduce_scatter &&
        behind[1].stream == Stream::experts && between.back().kind != OpKind::return_rows) {
      between.insert(between.end(), behind.begin(), behind.begin() + 2);
      behind.erase(behind.begin(), behind.begin() + 2);
    }
    // Ops behind the last communication, such as received_ends, wait for it.
    auto last = before.end();
    while (last != before.begin() && !communicates(std::prev(last)->kind)) --last;
    before.insert(last, up.begin(), up.end());
    out_.erase(first, out_.end());
    for (const auto* ops : {&before, &between, &down, &behind})
      out_.insert(out_.end(), ops->begin(), ops->end());
  }

  /// Returns what is computed behind `combine` without the experts' sums.
  std::set<TensorId> shared_values(std::vector<Op>::const_iterator combine) const {
    std::set<TensorId> mixed = {combine->outputs[0]}, shared;
    for (auto op = combine + 1; op != out_.end(); ++op) {
      const bool reads =
          std::ranges::any_of(op->inputs, [&](TensorId id) { return mixed.contains(id); });
      (reads ? mixed : shared).insert(op->outputs.begin(), op->outputs.end());
    }
    return shared;
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
    const bool sends = communicates(kind) || kind == OpKind::copy_to_group;
    return out_.emplace_back(op_near(near, kind, std::move(inputs), std::move(outputs),
                                     std::move(params), sends ? Stream::experts : Stream::compute));
  }

  /// Returns the part that this rank has of a value that sequence_parallel gathered.
  TensorId own(TensorId id) const {
    const auto found = gathered_.find(id);
    return found == gathered_.end() ? id : found->second;
  }

  /// A value of all ranks of a group.
  TensorId all(const Op& near, TensorId id, const Group& group) {
    Shape shape = graph_.at(id).shape;
    shape[0] *= size(graph_.grid, group);
    const TensorId whole = add_like(id, ".of_group", std::move(shape));
    push(near, OpKind::all_gather, {id}, {whole}, CollectiveParams{group});
    return whole;
  }

  /// Splits the experts' parameters, and makes edp ranks sum their gradients.
  void split_parameter(TensorId id, std::int64_t dim) {
    Tensor& weight = graph_.at(id);
    weight.split.reset();
    const std::int64_t ep = strategy_.ep;
    weight.shape[std::size_t(dim)] /= etp_;
    weight.shape[0] /= ep;
    if (etp_ > 1) {
      weight.split = Split{dim, Axis::etp, etp_, 1, 0, ep};
    } else if (ep > 1) {
      weight.split = Split{0, Axis::ep, ep};
    }
    if (graph_.grid[Axis::edp] > 1) weight.gradient_group = Group{{Axis::edp}};
  }

  struct Placed {
    TensorId rows, ends;
  };
  /// Rows for which a rank has memory, and how many of them are used.
  struct RowLimit {
    std::int64_t rows = 0;
    double filled = 1;
  };
  /// `choices` are those of all tokens from which the rank gets rows. Limits are rounded up for one
  /// sequence of the micro-batch, so that rows grow by as many with each: bounds of the search
  /// extend few sequences to many (planner/bounds/block_facts.h).
  RowLimit row_limit(std::int64_t choices) const {
    const std::int64_t ep = strategy_.ep, of_each = choices / micro_batch_;
    const std::int64_t even = (of_each + ep - 1) / ep;
    const std::int64_t of_token = std::min(experts_.chosen, experts_.count / ep);
    std::int64_t rows = of_each / experts_.chosen * of_token;
    if (ep > 1) rows = std::min(rows, (even * room_percent_ + 99) / 100);
    if (capacity_ > 0) rows = std::min(rows, experts_.count / ep * sequences() * capacity_);
    const double used = kept_ * double(of_each) / double(ep) * (ep > 1 ? experts_.load : 1);
    return {rows * micro_batch_, std::min(1.0, used / double(rows))};
  }

  /// Returns, for each of a micro-batch, the most sequences of which the ranks of etp and ep have
  /// tokens together. Ranks of mp and cp have tokens of the same ones.
  std::int64_t sequences() const {
    const std::int64_t ranks = etp_ * strategy_.ep, alike = strategy_.mp * strategy_.cp;
    if (ranks % alike == 0) return ranks / alike;
    return alike % ranks == 0 ? 1 : ranks / alike + 2;
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
    const std::map<TensorId, TensorId> renamed = {{ops.dispatch->outputs[0], rows},
                                                  {ops.dispatch->outputs[1], weights},
                                                  {ops.place->outputs[1], ends}};
    for (const Op* op : ops.of_rows) {
      Op& own = out_.emplace_back(*op);
      const bool multiplies = op->kind == OpKind::grouped_matmul;
      if (multiplies || op->kind == OpKind::grouped_bias_add) {
        // [e,h,2,f] and [e,2,f] are split by columns, [e,f,h] by rows.
        const std::size_t dims = graph_.at(op->inputs[1]).shape.size();
        split_parameter(op->inputs[1], multiplies && dims == 3 ? 1 : std::int64_t(dims) - 1);
      }
      rename(own.inputs, renamed);
      const TensorId y = op->outputs[0];
      resize(y, limit);
      const bool activates = op->kind == OpKind::swiglu || op->kind == OpKind::geglu;
      if (activates || graph_.at(y).shape.size() == 3) graph_.at(y).shape.back() /= etp_;
    }
  }

  /// Emits the experts of a layer. Returns their sums for this rank's tokens. With all_gather, the
  /// ranks of etp and ep work on all their tokens together.
  TensorId compute(const ExpertOps& ops) {
    const Op &place = *ops.place, &dispatch = *ops.dispatch;
    const std::int64_t ep = strategy_.ep, k = experts_.chosen;
    const bool sends = strategy_.experts.dispatch == ExpertDispatch::all_to_all && ep > 1;
    Group around;
    if (etp_ > 1 && !sends) around.axes.add(Axis::etp);
    if (ep > 1 && !sends) around.axes.add(Axis::ep);
    const bool alone = around.axes.empty();
    const auto of_all = [&](const Op& near, TensorId id) {
      return alone ? own(id) : all(near, own(id), around);
    };
    const TensorId x = of_all(dispatch, dispatch.inputs[0]),
                   weights = of_all(dispatch, dispatch.inputs[2]),
                   chosen = of_all(place, place.inputs[0]);
    const std::int64_t choices = graph_.at(x).shape[0] * k;
    const RowLimit limit = row_limit(choices * (sends ? ep : 1));
    const RowLimit given = sends ? RowLimit{choices, 1} : limit;
    const Placed placed = push_place(place, chosen, given.rows, sends ? 1 : ep);
    // Each rank gives a part of the gradients of the tokens and weights.
    const auto copied = [&](TensorId id) {
      if (alone) return id;
      const TensorId copy = add_like(id, ".copied", graph_.at(id).shape);
      push(dispatch, OpKind::copy_to_group, {id}, {copy}, CollectiveParams{around});
      return copy;
    };
    const TensorId copied_x = copied(x), copied_weights = copied(weights);
    const TensorId routed = dispatch.outputs[0], row_weights = dispatch.outputs[1];
    resize(routed, given);
    resize(row_weights, given);
    push(dispatch, OpKind::dispatch_rows, {copied_x, placed.rows, copied_weights},
         {routed, row_weights});
    TensorId computed = ops.combine->inputs[0];
    if (sends) {
      computed = compute_elsewhere(ops, placed, limit);
    } else {
      multiply(ops, routed, row_weights, placed.ends, limit);
    }
    const TensorId mixed = add_sums(ops, own(dispatch.inputs[0]));
    const TensorId sums = alone ? mixed : add_like(mixed, ".partial", graph_.at(x).shape);
    push(*ops.combine, OpKind::combine_rows, {computed, placed.rows}, {sums});
    if (!alone)
      push(*ops.combine, OpKind::reduce_scatter, {sums}, {mixed}, CollectiveParams{around});
    return mixed;
  }

  /// Sends rows to the ranks of their experts, and returns what these sent back.
  TensorId compute_elsewhere(const ExpertOps& ops, const Placed& placed, const RowLimit& limit) {
    const Op &place = *ops.place, &dispatch = *ops.dispatch;
    const Group group{{Axis::ep}};
    const CollectiveParams params{group};
    const std::int64_t ep = strategy_.ep;
    const TensorId all_ends = add_like(placed.ends, ".of_group", {ep, experts_.count});
    push(place, OpKind::all_gather, {placed.ends}, {all_ends}, params);
    const auto exchanged = [&](TensorId from) {
      const TensorId to = add_like(from, ".received", graph_.at(from).shape);
      resize(to, limit);
      push(dispatch, OpKind::exchange_rows, {from, all_ends}, {to}, params);
      return to;
    };
    const TensorId routed = dispatch.outputs[0];
    const TensorId received_weights = exchanged(dispatch.outputs[1]), received = exchanged(routed);
    const TensorId ends = add_like(placed.ends, ".received", {experts_.count / ep});
    push(place, OpKind::received_ends, {all_ends}, {ends},
         PlaceParams{.parts = ep, .rows = limit.rows, .drops = experts_.drop_overflow});
    TensorId computed = ops.combine->inputs[0];
    if (etp_ > 1) {
      computed = compute_together(ops, {received, received_weights, ends}, limit);
    } else {
      multiply(ops, received, received_weights, ends, limit);
    }
    const TensorId returned = add_like(routed, ".returned", graph_.at(routed).shape);
    push(*ops.combine, OpKind::return_rows, {computed, all_ends}, {returned}, params);
    return returned;
  }

  struct Received {
    TensorId rows, weights, ends;
  };
  /// Multiplies the rows of all ranks of etp, of which each rank got some. Returns the sums over
  /// these ranks of this rank's rows.
  TensorId compute_together(const ExpertOps& ops, const Received& own, const RowLimit& limit) {
    const Op &place = *ops.place, &dispatch = *ops.dispatch;
    const CollectiveParams params{Group{{Axis::etp}}};
    const std::int64_t experts = graph_.at(own.ends).shape[0];
    RowLimit all{limit.rows * etp_, limit.filled};
    if (capacity_ > 0) {  // ranks have the experts' rows of some sequences together
      all.rows = std::min(all.rows, experts * sequences() * capacity_ * micro_batch_);
      all.filled = std::min(1.0, limit.filled * double(limit.rows * etp_) / double(all.rows));
    }
    const TensorId all_ends = add_like(own.ends, ".of_group", {etp_, experts}),
                   ends = add_like(own.ends, ".together", {experts});
    push(place, OpKind::all_gather, {own.ends}, {all_ends}, params);
    const auto gathered = [&](TensorId from) {
      const TensorId to = add_like(from, ".together", graph_.at(from).shape);
      resize(to, all);
      push(dispatch, OpKind::all_gather_rows, {from, all_ends}, {to}, params);
      return to;
    };
    const TensorId weights = gathered(own.weights), rows = gathered(own.rows);
    push(place, OpKind::received_ends, {all_ends}, {ends},
         PlaceParams{.parts = 1, .rows = all.rows, .drops = experts_.drop_overflow});
    multiply(ops, rows, weights, ends, all);
    const TensorId sums = add_like(ops.combine->inputs[0], ".sums", graph_.at(own.rows).shape);
    resize(sums, limit);
    push(*ops.combine, OpKind::reduce_scatter_rows, {ops.combine->inputs[0], all_ends}, {sums},
         params);
    return sums;
  }

  /// The experts' sums for the tokens of x.
  TensorId add_sums(const ExpertOps& ops, TensorId x) {
    const TensorId sums = add_like(ops.combine->outputs[0], ".own", graph_.at(x).shape);
    graph_.at(sums).split = graph_.at(x).split;
    return sums;
  }

  /// Rows of 1/parts of the experts.
  Placed push_place(const Op& place, TensorId chosen, std::int64_t most, std::int64_t parts) {
    const Placed placed{add_like(place.outputs[0], ".own", graph_.at(chosen).shape),
                        add_like(place.outputs[1], ".own", {experts_.count / parts})};
    push(place, OpKind::place_choices, {chosen}, {placed.rows, placed.ends},
         PlaceParams{.parts = parts, .rows = most, .drops = experts_.drop_overflow});
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
  std::int64_t capacity_, micro_batch_, etp_, room_percent_;
  double kept_ = 1;  // the share of choices that a capacity keeps with even routing
  std::vector<Op> out_;
  std::map<TensorId, TensorId> gathered_;  // the part, by the whole
};

}  // namespace

bool expert_parallel(Graph& graph, const PassContext& context) {
  if (!context.job.experts || !experts_apart(context.strategy)) return false;
  ExpertSplitter(graph, context).run();
  return true;
}

}  // namespace plimsoll
