// The second half of context parallelism: attention over parts of sequences that other ranks have.
//
// Each rank has two of 2 cp chunks of a sequence, the i-th from the front and the i-th from the
// back, so that a causal mask leaves every rank half of the scores of its queries with each part of
// the keys (Megatron-LM core/utils.py, get_batch_on_this_cp_rank; Transformer Engine
// pytorch/attention, context_parallel.py; Brandon et al. 2023, arXiv 2311.09431). So an op over a
// part of the keys costs as one causal attention of that size: half of its scores. Which half it
// is, the kernel finds by the rank's coordinate (runtime/sequence_part.h), since the ranks of a
// class share one Program.
//
// ring: keys and values travel round the ring, and the next ones travel while the product of the
// present ones is computed. In round i a rank has the keys of the rank i before it. Outputs are
// merged by their log-sum-exp (Liu et al. 2023, arXiv 2310.01889). Backward starts from the keys
// that came last, those of the rank behind, and sends them back. The sums of their gradients follow
// a step behind and so arrive at their rank: cp - 1 shifts of each (AttnFuncWithCPAndKVP2P).
// all_gather: keys and values of all ranks are gathered before attention, and again before its
// backward; their gradients are scattered (Llama 3, arXiv 2407.21783, section 3.3.2).
// all_to_all: heads are exchanged for tokens and back (DeepSpeed Ulysses, Jacobs et al. 2023, arXiv
// 2309.14509, section 3). What goes to a rank has to be contiguous: heads are copied before they
// leave, and after they are back (DeepSpeed sequence/layer.py, single_all_to_all; Transformer
// Engine context_parallel.py, flash_attn_a2a_communicate).
// PyTorch (torch/distributed/tensor/experimental/_attention.py, context_parallel, at 0123248a) sums
// outputs and gradients in f32 (Framework::parallelism.sums_parts_in_f32). Its backward begins with
// a rank's own keys, so their sums travel cp times. Keys that rotate_method=allgather gathers are
// read part by part, too. Here the gather is shifts in advance, of as many bytes. Keys and values
// travel in one buffer. If they differ in width, as in latent attention, each head has its key and
// its value side by side there (AttnFuncWithCPAndKVP2P puts one behind the other).
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/graph/saved_tensors.h"

namespace plimsoll {

namespace {

/// Queries, and keys with values, of one attention op, as operands of their own.
struct QkvOperands {
  TensorId q, kv;
};

class Exchanger {
 public:
  Exchanger(Graph& graph, const PassContext& context)
      : graph_(graph), strategy_(context.strategy), framework_(context.framework) {}

  bool run() {
    bool changed = false;
    for (const Op& op : graph_.ops) {
      if (op.kind == OpKind::flash_attention) {
        forward(op);
      } else if (op.kind == OpKind::flash_attention_backward) {
        backward(op);
      } else {
        if (op.kind == OpKind::add_sinks) keep_sunk(op);
        if (op.kind == OpKind::cast) keep_cast(op);
        out_.push_back(op);
        continue;
      }
      changed = true;
    }
    graph_.ops = std::move(out_);
    mark_saved(graph_);
    remove_unused_tensors(graph_);
    return changed;
  }

 private:
  /// The tensors that forward leaves for backward, by the op's first output.
  struct SavedAttention {
    QkvOperands parts;  ///< what backward's products read: in a ring the keys that came last
    TensorId y, log_sum_exp;
  };

  TensorId add_tensor_like(TensorId id, const std::string& suffix) {
    const TensorId like = add_like(graph_, id, suffix);
    graph_.at(like).role = TensorRole::activation;
    return like;
  }

  Op& push(const Op& near, OpKind kind, std::vector<TensorId> inputs,
           std::vector<TensorId> outputs) {
    return out_.emplace_back(op_near(near, kind, std::move(inputs), std::move(outputs)));
  }

  TensorId exchanged(const Op& near, OpKind kind, TensorId from, TensorId to) {
    Op& op = push(near, kind, {from}, {to});
    op.stream = Stream::context;
    op.params = CollectiveParams{Group{{Axis::cp}}};
    return to;
  }
  TensorId shifted(const Op& near, TensorId x, std::int64_t step) {
    const TensorId to = add_tensor_like(x, "." + std::to_string(step));
    exchanged(near, OpKind::ring_shift, x, to);
    const bool back = near.phase == Phase::backward && !framework_.parallelism.sums_parts_in_f32;
    if (back) std::get<CollectiveParams>(out_.back().params).shift = -1;
    return to;
  }
  /// Shifts the keys and values of the first `rounds` rounds that are not there yet. Names count
  /// shifts of backward from cp, after those of forward.
  void receive(const Op& near, std::vector<TensorId>& kv, std::int64_t rounds) {
    const std::int64_t before = near.phase == Phase::backward ? strategy_.cp - 1 : 0;
    while (std::int64_t(kv.size()) < std::min(rounds, strategy_.cp))
      kv.push_back(shifted(near, kv.back(), before + std::int64_t(kv.size())));
  }
  /// The number of rounds whose keys and values have been sent before the attention of a round.
  std::int64_t rounds_ahead(std::int64_t round) const {
    if (framework_.parallelism.overlap.awaits_exchanges) return round + 1;
    return strategy_.tokens.context_exchange == ContextExchange::all_gather ? strategy_.cp
                                                                            : round + 2;
  }

  /// Casts `x` to `to`, and returns `to`.
  TensorId cast_to(const Op& near, TensorId x, TensorId to) {
    push(near, OpKind::cast, {x}, {to});
    return to;
  }
  /// Returns a result of one round in the type in which the rounds are summed.
  TensorId as_summed(const Op& near, TensorId x) {
    if (!framework_.parallelism.sums_parts_in_f32 || graph_.at(x).dtype == DType::f32) return x;
    const TensorId wide = add_tensor_like(x, ".f32");
    graph_.at(wide).dtype = DType::f32;
    return cast_to(near, x, wide);
  }

  /// Returns keys and values with one head for each head of the queries, if the framework repeats
  /// them and its ring sums their gradients whole (send_home).
  TensorId repeated(const Op& near, QkvOperands parts) {
    const std::int64_t heads = graph_.at(parts.q).shape[2];
    const bool repeats =
        framework_.kernels.attention.repeats_keys && framework_.parallelism.sums_parts_in_f32;
    if (!repeats || graph_.at(parts.kv).shape[2] == heads) return parts.kv;
    const TensorId to =
        add_tensor_like(parts.kv, near.phase == Phase::backward ? ".repeated_again" : ".repeated");
    graph_.at(to).shape[2] = heads;
    push(near, OpKind::repeat_heads, {parts.kv}, {to});
    return to;
  }

  QkvOperands parts_of(const Op& near, TensorId packed) {
    TensorId parts[2];
    for (const bool keys : {false, true}) {
      parts[keys] = add_tensor_like(packed, keys ? ".kv" : ".q");
      graph_.at(parts[keys]).shape[1] = keys ? 2 : 1;
    }
    push(near, OpKind::split_parts, {packed}, {parts[0], parts[1]});
    return {parts[0], parts[1]};
  }

  /// A buffer for a key and a value: [n,2,a,d]; or [n,1,a,d+e], where they differ in width.
  TensorId pair_like(TensorId key, TensorId value) {
    const TensorId pair = add_tensor_like(key, ".kv");
    const std::int64_t width = graph_.at(value).shape[3];
    Shape& shape = graph_.at(pair).shape;
    if (shape[3] == width) {
      shape[1] = 2;
    } else {
      shape[3] += width;
    }
    return pair;
  }

  AttentionParams with_all_keys(const Op& op) const {
    auto params = std::get<AttentionParams>(op.params);
    params.sequence *= strategy_.cp;
    params.key_ranks = strategy_.cp;
    return params;
  }
  static AttentionParams in_round(const Op& op, std::int64_t round) {
    auto params = std::get<AttentionParams>(op.params);
    params.round = round;
    return params;
  }

  // ---- forward ----

  /// Keys and values travel together.
  QkvOperands own_parts(const Op& op) {
    if (op.inputs.size() == 1) return parts_of(op, op.inputs[0]);
    if (op.inputs.size() == 2) return {op.inputs[0], op.inputs[1]};
    const TensorId kv = pair_like(op.inputs[1], op.inputs[2]);
    push(op, OpKind::join_parts, {op.inputs[1], op.inputs[2]}, {kv});
    return {op.inputs[0], kv};
  }

  void forward(const Op& op) {
    const QkvOperands own = own_parts(op);
    switch (exchange()) {
      case ContextExchange::ring:
        left_.emplace(op.outputs[0], ring_forward(op, own));
        return;
      case ContextExchange::all_gather: {
        const TensorId all = gathered(op, own.kv);
        push(op, op.kind, {own.q, all}, op.outputs).params = with_all_keys(op);
        left_.emplace(op.outputs[0], SavedAttention{own, op.outputs[0], op.outputs[1]});
        return;
      }
      case ContextExchange::all_to_all:
        left_.emplace(op.outputs[0], heads_forward(op, own));
        return;
    }
  }

  /// A framework that sums parts in f32 also reads gathered keys part by part, as in a ring.
  ContextExchange exchange() const {
    const bool by_parts = strategy_.tokens.context_exchange == ContextExchange::all_gather &&
                          framework_.parallelism.sums_parts_in_f32;
    return by_parts ? ContextExchange::ring : strategy_.tokens.context_exchange;
  }

  SavedAttention ring_forward(const Op& op, QkvOperands own) {
    TensorId y = op.outputs[0], sums = op.outputs[1];
    std::vector<TensorId> kv = {repeated(op, own)};
    for (std::int64_t step = 0; step < strategy_.cp; ++step) {
      const bool last = step + 1 == strategy_.cp;
      receive(op, kv, rounds_ahead(step));
      const std::string suffix = ".part" + std::to_string(step);
      const TensorId out = add_tensor_like(op.outputs[0], suffix),
                     part_sums = add_tensor_like(op.outputs[1], suffix);
      push(op, op.kind, {own.q, kv[std::size_t(step)]}, {out, part_sums}).params =
          in_round(op, step);
      const TensorId part = as_summed(op, out);
      if (step == 0) {
        y = part;
        sums = part_sums;
        continue;
      }
      const std::string merged = ".merged" + std::to_string(step);
      const bool ends = last && part == out;
      const TensorId to = ends ? op.outputs[0] : add_tensor_like(op.outputs[0], merged);
      graph_.at(to).dtype = graph_.at(part).dtype;
      const TensorId to_sums = last ? op.outputs[1] : add_tensor_like(op.outputs[1], merged);
      push(op, OpKind::merge_attention, {y, sums, part, part_sums}, {to, to_sums});
      y = to;
      sums = to_sums;
    }
    if (y != op.outputs[0]) y = cast_to(op, y, op.outputs[0]);
    return {{own.q, framework_.parallelism.sums_parts_in_f32 ? own.kv : kv.back()}, y, sums};
  }

  TensorId gathered(const Op& near, TensorId kv) {
    const std::string suffix = near.phase == Phase::forward ? ".all" : ".all_again";
    const TensorId all = add_tensor_like(kv, suffix);
    graph_.at(all).shape[0] *= strategy_.cp;
    return exchanged(near, OpKind::all_gather, kv, all);
  }

  /// A tensor like `x` with cp times the tokens and 1/cp of the heads [n,parts,a,d], or of the
  /// columns [n,a*d].
  TensorId grouped_like(TensorId x, const std::string& suffix) {
    const TensorId to = add_tensor_like(x, suffix);
    Shape& shape = graph_.at(to).shape;
    shape[0] *= strategy_.cp;
    shape[shape.size() == 4 ? 2 : 1] /= strategy_.cp;
    return to;
  }
  /// Returns all tokens of 1/cp of the heads or columns of `x`.
  TensorId all_tokens(const Op& near, TensorId x) {
    const TensorId grouped = grouped_like(x, ".grouped");
    push(near, OpKind::group_heads, {x}, {grouped});
    return exchanged(near, OpKind::all_to_all, grouped, grouped_like(x, ".all_tokens"));
  }
  /// Gives all heads of this rank's tokens, `to`, from all tokens of 1/cp of them.
  void all_heads(const Op& near, TensorId from, TensorId to) {
    const TensorId grouped = grouped_like(to, ".grouped");
    exchanged(near, OpKind::all_to_all, from, grouped);
    push(near, OpKind::ungroup_heads, {grouped}, {to});
  }
  /// The shape of log-sum-exp: all tokens of 1/cp of the heads [b,a,s].
  TensorId all_sums(TensorId sums) {
    const TensorId to = add_tensor_like(sums, ".all_tokens");
    Tensor& tensor = graph_.at(to);
    const std::int64_t b = tensor.shape[0];
    tensor.shape = {b, 1, elements(tensor.shape) / b};
    return to;
  }

  SavedAttention heads_forward(const Op& op, QkvOperands own) {
    const QkvOperands all{all_tokens(op, own.q), all_tokens(op, own.kv)};
    const TensorId y = grouped_like(op.outputs[0], ".all_tokens");
    const TensorId sums = all_sums(op.outputs[1]);
    push(op, op.kind, {all.q, all.kv}, {y, sums}).params = with_all_keys(op);
    all_heads(op, y, op.outputs[0]);
    return {all, y, sums};
  }

  /// Backward reads the results with sinks (graph/ops.def).
  void keep_sunk(const Op& op) {
    left_.emplace(op.outputs[0],
                  SavedAttention{left_.at(op.inputs[0]).parts, op.outputs[0], op.outputs[1]});
  }

  /// Sinks that stay f32 beside a narrower type read and give results in f32.
  void keep_cast(const Op& op) {
    const auto found = left_.find(op.inputs[0]);
    if (found == left_.end()) return;
    const SavedAttention cast{found->second.parts, op.outputs[0], found->second.log_sum_exp};
    left_.emplace(op.outputs[0], cast);
  }

  // ---- backward ----

  void backward(const Op& op) {
    const bool packed = op.outputs.size() == 1;
    const TensorId dy = op.inputs[0];
    const SavedAttention& left = left_.at(op.inputs[op.inputs.size() - 2]);
    QkvOperands gradients{op.outputs[0], op.outputs.back()};
    const bool apart = op.outputs.size() == 3;
    if (apart) gradients.kv = pair_like(op.outputs[1], op.outputs[2]);
    if (packed) {
      gradients.q = add_tensor_like(op.outputs[0], ".q");
      gradients.kv = add_tensor_like(op.outputs[0], ".kv");
      graph_.at(gradients.q).shape[1] = 1;
      graph_.at(gradients.kv).shape[1] = 2;
    }
    switch (exchange()) {
      case ContextExchange::ring:
        ring_backward(op, dy, left, gradients);
        break;
      case ContextExchange::all_gather: {
        const TensorId kv = gathered(op, left.parts.kv), dkv = add_tensor_like(kv, ".gradient");
        push(op, op.kind, {dy, left.parts.q, kv, left.y, left.log_sum_exp}, {gradients.q, dkv})
            .params = with_all_keys(op);
        exchanged(op, OpKind::reduce_scatter, dkv, gradients.kv);
        break;
      }
      case ContextExchange::all_to_all:
        heads_backward(op, dy, left, gradients);
        break;
    }
    if (packed) push(op, OpKind::join_parts, {gradients.q, gradients.kv}, {op.outputs[0]});
    if (apart) push(op, OpKind::split_parts, {gradients.kv}, {op.outputs[1], op.outputs[2]});
  }

  void ring_backward(const Op& op, TensorId dy, const SavedAttention& left, QkvOperands gradients) {
    const bool own_first = framework_.parallelism.sums_parts_in_f32;
    std::vector<TensorId> kv = {own_first ? repeated(op, left.parts) : left.parts.kv};
    TensorId dq, dkv;
    for (std::int64_t step = 0; step < strategy_.cp; ++step) {
      const bool last = step + 1 == strategy_.cp;
      const std::string suffix = ".part" + std::to_string(step);
      receive(op, kv, rounds_ahead(step));
      const bool awaited = framework_.parallelism.overlap.awaits_exchanges && step > 0;
      TensorId arrived = step == 0 || awaited ? dkv : shifted(op, dkv, step);
      const TensorId dq_part = add_tensor_like(gradients.q, suffix),
                     dkv_part = add_tensor_like(gradients.kv, suffix);
      graph_.at(dkv_part).shape = graph_.at(kv[0]).shape;
      push(op, op.kind, {dy, left.parts.q, kv[std::size_t(step)], left.y, left.log_sum_exp},
           {dq_part, dkv_part})
          .params = in_round(op, own_first ? step : strategy_.cp - 1 - step);
      const TensorId more_q = as_summed(op, dq_part), more_kv = as_summed(op, dkv_part);
      dq = step == 0 ? more_q : sum(op, dq, more_q, gradients.q, last, step);
      if (awaited) arrived = shifted(op, dkv, step);
      dkv = step == 0 ? more_kv : sum(op, arrived, more_kv, gradients.kv, last && !own_first, step);
    }
    if (dq != gradients.q) cast_to(op, dq, gradients.q);
    if (own_first) send_home(op, dkv, gradients.kv);
  }

  /// Sends the sums of keys' gradients to the rank of the keys, in the type and with the heads of
  /// the keys.
  void send_home(const Op& near, TensorId sums, TensorId to) {
    const bool wide = graph_.at(sums).dtype != graph_.at(to).dtype;
    const bool repeats = graph_.at(sums).shape != graph_.at(to).shape;
    if (!wide && !repeats) {
      exchanged(near, OpKind::ring_shift, sums, to);
      return;
    }
    TensorId home = shifted(near, sums, strategy_.cp);
    if (wide && repeats) {
      const TensorId narrow = add_tensor_like(home, ".narrow");
      graph_.at(narrow).dtype = graph_.at(to).dtype;
      home = cast_to(near, home, narrow);
    }
    push(near, repeats ? OpKind::sum_heads : OpKind::cast, {home}, {to});
  }

  /// The last sum is `whole` itself if it has the type of the sums.
  TensorId sum(const Op& near, TensorId a, TensorId b, TensorId whole, bool last,
               std::int64_t step) {
    const bool ends = last && graph_.at(whole).dtype == graph_.at(b).dtype;
    const TensorId to = ends ? whole : add_tensor_like(whole, ".sum" + std::to_string(step));
    if (!ends) {
      graph_.at(to).dtype = graph_.at(b).dtype;
      graph_.at(to).shape = graph_.at(b).shape;
    }
    push(near, OpKind::add, {a, b}, {to});
    return to;
  }

  void heads_backward(const Op& op, TensorId dy, const SavedAttention& left,
                      QkvOperands gradients) {
    const TensorId all_dy = all_tokens(op, dy);
    const TensorId dq = add_tensor_like(left.parts.q, ".gradient"),
                   dkv = add_tensor_like(left.parts.kv, ".gradient");
    push(op, op.kind, {all_dy, left.parts.q, left.parts.kv, left.y, left.log_sum_exp}, {dq, dkv})
        .params = with_all_keys(op);
    all_heads(op, dq, gradients.q);
    all_heads(op, dkv, gradients.kv);
  }

  Graph& graph_;
  const Strategy& strategy_;
  const Framework& framework_;
  std::map<TensorId, SavedAttention> left_;
  std::vector<Op> out_;
};

}  // namespace

bool context_exchange(Graph& graph, const PassContext& context) {
  if (context.strategy.cp == 1) return false;
  return Exchanger(graph, context).run();
}

}  // namespace plimsoll
