// Legality of the ops of attention and of experts.
#include "graph/op_rows.h"

namespace plimsoll {

namespace {

std::int64_t sequence_of(const Op& op) { return std::get<AttentionParams>(op.params).sequence; }

/// Only causal attention has a window, and only with a window there are chunks.
bool has_wrong_window(const Op& op) {
  const auto& params = std::get<AttentionParams>(op.params);
  return params.window < 0 || (params.chunks && params.window == 0) ||
         (params.window > 0 && !params.causal);
}

bool has_wrong_examples(const Op& op) {
  const auto& params = std::get<AttentionParams>(op.params);
  return params.within_examples < 0 || params.within_examples > 1 ||
         (params.within_examples > 0 && !params.causal);
}

}  // namespace

/// Heads are [b,a,s,d], or [b,kv,g*s,d] where g query heads share a key and value head.
Verdict check_heads(const Op& op, Tensors tensors) {
  const bool split = op.kind == OpKind::split_heads || op.kind == OpKind::merge_heads_backward;
  const std::vector<TensorId>& parts = split ? op.outputs : op.inputs;
  const Tensor& joined = split ? in(op, tensors, 0) : out(op, tensors, 0);
  const std::int64_t sequence = sequence_of(op);
  std::int64_t count = 0;
  for (TensorId id : parts) {
    const Shape& heads = tensors[id.index()].shape;
    if (heads.size() != 4) return Verdict::no("heads are not [b,a,s,d]");
    if (sequence < 1 || heads[2] % sequence != 0)
      return Verdict::no("sequence parameter does not match the shape");
    count += elements(heads);
  }
  const bool packed = op.kind == OpKind::split_heads || op.kind == OpKind::split_heads_backward;
  if (packed && (joined.shape.size() != 4 || joined.shape[1] != std::int64_t(parts.size()))) {
    return Verdict::no("the packed heads are not [n,parts,a,d]");
  }
  return count == elements(joined.shape) ? Verdict::yes()
                                         : Verdict::no("inputs and outputs differ in size");
}

/// Elements of qkv [n,3,a,d], or q [n,1,a,d] and kv [n,2,kv,d] or [n,1,kv,d+e], or k [n,1,kv,d] and
/// v [n,1,kv,e], y [n,a*d] or [n,a*e], and log_sum_exp [b,a,s] fit each other.
Verdict check_flash_attention(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::flash_attention_backward;
  const std::size_t first = backward ? 1 : 0;
  const std::size_t packed = backward ? op.inputs.size() - 3 : op.inputs.size();
  const Shape& queries = in(op, tensors, first).shape;
  const Tensor& y = backward ? in(op, tensors, first + packed) : out(op, tensors, 0);
  const Tensor& sums = backward ? in(op, tensors, first + packed + 1) : out(op, tensors, 1);
  if (packed == 1) {
    if (queries.size() != 4 || queries[1] != 3) return Verdict::no("qkv is not [n,3,a,d]");
  } else {
    const Shape& keys = in(op, tensors, first + 1).shape;
    if (queries.size() != 4 || queries[1] != 1) return Verdict::no("q is not [n,1,a,d]");
    // Where keys were gathered from ranks that share a sequence there are more of them.
    const bool beside = packed == 2 && keys.size() == 4 && keys[1] == 1;
    const std::int64_t parts = packed == 2 && !beside ? 2 : 1;
    if (keys.size() != 4 || keys[1] != parts || keys[0] % queries[0] != 0 ||
        (beside ? keys[3] <= queries[3] : keys[3] != queries[3]) || queries[2] % keys[2] != 0) {
      return Verdict::no(packed == 2 ? "kv is not [n,2,kv,d] or [n,1,kv,d+e] with kv dividing a"
                                     : "the key is not [n,1,kv,d] with kv dividing a");
    }
    const Shape& values = in(op, tensors, first + packed - 1).shape;
    if (packed == 3 && (values.size() != 4 || values[0] != keys[0] || values[1] != keys[1] ||
                        values[2] != keys[2])) {
      return Verdict::no("the value is not like the key");
    }
  }
  const Shape& keys = packed == 1 ? queries : in(op, tensors, first + 1).shape;
  const Shape& values = in(op, tensors, first + packed - 1).shape;
  if (sequence_of(op) < 1 || keys[0] % sequence_of(op) != 0)
    return Verdict::no("qkv is not whole sequences");
  if (elements(y.shape) != queries[0] * queries[2] * value_width(packed, queries, values))
    return Verdict::no("y is not [n,a*d]");
  if (elements(sums.shape) != queries[0] * queries[2] || sums.dtype != DType::f32) {
    return Verdict::no("log_sum_exp is not f32 [b,a,s]");
  }
  if (has_wrong_window(op)) return Verdict::no("window is not one of causal attention");
  const auto& params = std::get<AttentionParams>(op.params);
  if (params.key_ranks < 1 || params.round < 0 || (params.key_ranks > 1 && params.round > 0))
    return Verdict::no("the keys are not those of one rank of a ring, or of all");
  if (params.soft_cap < 0) return Verdict::no("soft_cap is below 0");
  if (params.alibi_heads < 0) return Verdict::no("alibi_heads is below 0");
  if (has_wrong_examples(op)) return Verdict::no("within_examples is no share of causal scores");
  if (backward && op.outputs.size() != packed) {
    return Verdict::no("there is not one gradient per input");
  }
  return Verdict::yes();
}

Verdict check_softmax(const Op& op, Tensors tensors) {
  const Shape& scores = in(op, tensors, 0).shape;
  if (scores.size() != 4 || scores[3] != sequence_of(op) || scores[2] % scores[3] != 0) {
    return Verdict::no("scores are not [b,a,s,s]");
  }
  if (has_wrong_window(op)) return Verdict::no("window is not one of causal attention");
  if (std::get<AttentionParams>(op.params).alibi_heads < 0)
    return Verdict::no("alibi_heads is below 0");
  if (has_wrong_examples(op)) return Verdict::no("within_examples is no share of causal scores");
  const Tensor &p = out(op, tensors, 0), &of = in(op, tensors, 0);
  if (elements(p.shape) != elements(scores) || p.dtype != of.dtype)
    return Verdict::no("scores and probabilities differ in size or dtype");
  const bool sunk = op.kind == OpKind::softmax && op.inputs.size() == 2;
  if (sunk && elements(in(op, tensors, 1).shape) != scores[1] * (scores[2] / scores[3]))
    return Verdict::no("there is not one sink for each head");
  return op.kind == OpKind::softmax ? Verdict::yes() : elementwise(op, tensors);
}

Verdict check_softmax_sinks(const Op& op, Tensors tensors) {
  const Shape& dp = in(op, tensors, 0).shape;
  if (dp.size() != 4 || dp != in(op, tensors, 1).shape || dp[2] % dp[3] != 0)
    return Verdict::no("probabilities and their gradient are not [b,a,s,s]");
  return elements(out(op, tensors, 0).shape) == dp[1] * (dp[2] / dp[3])
             ? Verdict::yes()
             : Verdict::no("there is not one sink for each head");
}

namespace {

/// y [n,a*d] and sums [b,a,s] are of the heads that have these sinks [a].
Verdict sinks_fit(const Shape& y, const Tensor& sums, const Shape& sinks) {
  const std::int64_t heads = elements(sinks);
  if (y.size() != 2 || heads < 1 || y[1] % heads != 0 || elements(sums.shape) != y[0] * heads ||
      sums.dtype != DType::f32) {
    return Verdict::no("y and sums are not [n,a*d] and f32 [b,a,s] for sinks [a]");
  }
  return Verdict::yes();
}

}  // namespace

Verdict check_add_sinks(const Op& op, Tensors tensors) {
  const Tensor &x = in(op, tensors, 0), &y = out(op, tensors, 0);
  if (x.shape != y.shape || x.dtype != y.dtype) return Verdict::no("y is not like x");
  if (in(op, tensors, 1).shape != out(op, tensors, 1).shape)
    return Verdict::no("the sums differ in shape");
  return sinks_fit(x.shape, in(op, tensors, 1), in(op, tensors, 2).shape);
}

Verdict check_sinks_gradient(const Op& op, Tensors tensors) {
  const Shape& y = in(op, tensors, 1).shape;
  if (in(op, tensors, 0).shape != y) return Verdict::no("dy is not like y");
  if (elements(in(op, tensors, 3).shape) != elements(out(op, tensors, 0).shape))
    return Verdict::no("there is not one gradient for each sink");
  return sinks_fit(y, in(op, tensors, 2), in(op, tensors, 3).shape);
}

/// qkv [n,3,a,d], q [n,1,a,d] and kv [n,2,a,d]: the packed one is what is split or joined. Or a
/// part has columns of each head: kv [n,1,a,d+e], k [n,1,a,d] and v [n,1,a,e].
Verdict check_parts(const Op& op, Tensors tensors) {
  const bool splits = op.kind == OpKind::split_parts;
  const Tensor& packed = splits ? in(op, tensors, 0) : out(op, tensors, 0);
  const std::vector<TensorId>& parts = splits ? op.outputs : op.inputs;
  Shape joined = packed.shape;
  if (joined.size() != 4) return Verdict::no("qkv is not [n,3,a,d]");
  const std::size_t dim = joined[1] == 1 ? 3 : 1;
  std::int64_t count = 0;
  for (TensorId id : parts) {
    const Tensor& part = tensors[id.index()];
    if (part.shape.size() != 4) return Verdict::no("a part is not [n,parts,a,d]");
    if (part.dtype != packed.dtype) return Verdict::no("a part and the whole differ in dtype");
    count += joined[dim] = part.shape[dim];
    if (part.shape != joined) {
      return Verdict::no(std::string("a part and the whole differ in more than ") +
                         (dim == 1 ? "parts" : "columns"));
    }
  }
  return count == packed.shape[dim] ? Verdict::yes() : Verdict::no("the parts are not all of it");
}

/// The grouped one is [ranks*n,parts,a/ranks,d], or [ranks*n,h/ranks], of the other.
Verdict check_grouped_heads(const Op& op, Tensors tensors) {
  const bool groups = op.kind == OpKind::group_heads;
  const Shape& plain = (groups ? in(op, tensors, 0) : out(op, tensors, 0)).shape;
  const Shape& grouped = (groups ? out(op, tensors, 0) : in(op, tensors, 0)).shape;
  if ((plain.size() != 4 && plain.size() != 2) || plain.size() != grouped.size())
    return Verdict::no("heads are not [n,parts,a,d], nor columns [n,h]");
  const std::size_t heads = plain.size() == 4 ? 2 : 1;
  const std::int64_t ranks = grouped[0] / plain[0];
  Shape whole = grouped;
  whole[0] = plain[0];
  whole[heads] *= ranks;
  if (grouped[0] % plain[0] != 0 || whole != plain)
    return Verdict::no("the grouped heads are not those of each rank");
  return elementwise(op, tensors);
}

/// Outputs and log-sum-exp of the same queries over different keys are of one type each.
Verdict check_merge_attention(const Op& op, Tensors tensors) {
  const Tensor &y = out(op, tensors, 0), &sums = out(op, tensors, 1);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (in(op, tensors, i).dtype != (i % 2 == 0 ? y : sums).dtype)
      return Verdict::no("input " + std::to_string(i) + " is not like what they are merged into");
  }
  return sums.dtype == DType::f32 ? Verdict::yes() : Verdict::no("log_sum_exp is not f32");
}

Verdict check_repeated_heads(const Op& op, Tensors tensors) {
  const bool repeats = op.kind == OpKind::repeat_heads;
  const Tensor &few = repeats ? in(op, tensors, 0) : out(op, tensors, 0),
               &many = repeats ? out(op, tensors, 0) : in(op, tensors, 0);
  if (few.shape.size() != 4 || many.shape.size() != 4 || few.dtype != many.dtype)
    return Verdict::no("heads are not [n,parts,a,d] of one dtype");
  Shape shape = many.shape;
  shape[2] = few.shape[2];
  if (few.shape != shape || many.shape[2] % few.shape[2] != 0)
    return Verdict::no("the heads of one are not those of the other, repeated");
  return Verdict::yes();
}

/// kv [n,1,a,c], rope [n,1,1,p], k [n,1,a,c-e+p] and v [n,1,a,e] fit each other.
Verdict check_share_rope_key(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::share_rope_key_backward;
  const auto& joined = backward ? op.outputs : op.inputs;
  const auto& parts = backward ? op.inputs : op.outputs;
  const Tensor &kv = tensors[joined[0].index()], &rope = tensors[joined[1].index()];
  const Tensor &k = tensors[parts[0].index()], &v = tensors[parts[1].index()];
  for (const Tensor* tensor : {&kv, &rope, &k, &v}) {
    const bool shared = tensor == &rope;
    if (tensor->shape.size() != 4 || tensor->shape[0] != kv.shape[0] || tensor->shape[1] != 1 ||
        tensor->shape[2] != (shared ? 1 : kv.shape[2])) {
      return Verdict::no(shared ? "the rope key is not [n,1,1,p]" : "heads are not [n,1,a,d]");
    }
    if (tensor->dtype != kv.dtype) return Verdict::no("keys and values differ in dtype");
  }
  return kv.shape[3] + rope.shape[3] == k.shape[3] + v.shape[3] && v.shape[3] < kv.shape[3]
             ? Verdict::yes()
             : Verdict::no("columns of keys and values are not those of kv and the rope key");
}

Verdict check_gates(const Op& op, Tensors) {
  const auto& params = std::get<ActivationParams>(op.params);
  const bool plain = params.limit == 0 && params.sharpness == 1 && params.offset == 0;
  const bool silu = op.kind == OpKind::swiglu || op.kind == OpKind::swiglu_backward;
  if (silu && params.exact) return Verdict::no("exact is of GELU");
  if (!silu && !plain) return Verdict::no("limit, sharpness and offset are of swiglu");
  return params.limit < 0 ? Verdict::no("the limit is below 0") : Verdict::yes();
}

Verdict check_activation(const Op& op, Tensors tensors) {
  const Verdict gates = check_gates(op, tensors);
  return gates ? elementwise(op, tensors) : gates;
}

Verdict check_soft_cap(const Op& op, Tensors tensors) {
  if (!(std::get<CapParams>(op.params).limit > 0)) return Verdict::no("the limit is not above 0");
  return elementwise(op, tensors);
}

Verdict check_rotary(const Op& op, Tensors tensors) {
  const Shape& x = in(op, tensors, 0).shape;
  const auto& params = std::get<RotaryParams>(op.params);
  if (x.size() != 4 || (x[3] % 2 != 0 && params.width == 0))
    return Verdict::no("x is not [n,parts,a,d] with even d");
  const QueryGrowth& growth = params.growth;
  if (growth.factor < 0 || growth.span < 0 || growth.ahead < 0)
    return Verdict::no("growth, its span or what is ahead is below 0");
  if (params.rotated < (growth.span > 0 ? 0 : 1) || params.rotated > x[1])
    return Verdict::no("rotated is not within parts");
  if (params.width < 0 || params.width > x[3] || params.width % 2 != 0)
    return Verdict::no("width is not an even part of d");
  if (params.sequence < 1 || x[0] % params.sequence != 0) {
    return Verdict::no("x is not whole sequences");
  }
  if (!(params.scale.factor > 0 && params.scale.amplitude > 0))
    return Verdict::no("factor and amplitude are not above 0");
  return elementwise(op, tensors);
}

// ---- experts ----

namespace {

const Shape& input_shape(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.inputs[i].index()].shape;
}
const Shape& output_shape(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.outputs[i].index()].shape;
}
bool is_matrix(const Shape& shape) { return shape.size() == 2; }

/// Rows of a value [m,...], by what they have in common.
std::int64_t columns(const Shape& shape) { return elements(shape) / shape[0]; }

}  // namespace

Verdict check_route(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::route_backward;
  const auto& params = std::get<RouteParams>(op.params);
  const std::int64_t most = input_shape(op, tensors, backward ? 1 : 0).back(),
                     groups = params.groups;
  const std::int64_t chosen =
      (backward ? input_shape(op, tensors, 0) : output_shape(op, tensors, 0)).back();
  if (groups < 1 || most % groups != 0) return Verdict::no("groups do not divide the experts");
  const std::int64_t each = most / groups;
  if (params.top_groups < 1 || params.top_groups > groups)
    return Verdict::no("top_groups is not from 1 to the number of groups");
  if (params.group_best < 1 || params.group_best > each)
    return Verdict::no("group_best is not from 1 to the experts of a group");
  if (chosen < 1 || chosen > params.top_groups * each)
    return Verdict::no("a token chooses more experts than there are");
  return Verdict::yes();
}

Verdict check_join_tokens(const Op& op, Tensors tensors) {
  const bool joins = op.kind == OpKind::join_tokens;
  const auto part = [&](std::size_t i) -> const Shape& {
    return joins ? input_shape(op, tensors, i) : output_shape(op, tensors, i);
  };
  const Shape &a = part(0), &b = part(1),
              &whole = joins ? output_shape(op, tensors, 0) : input_shape(op, tensors, 0);
  if (a.empty() || b.empty() || elements(a) % b[0] != 0)
    return Verdict::no("a does not have as many values for each row of b");
  return elements(whole) == elements(a) + elements(b)
             ? Verdict::yes()
             : Verdict::no("the whole is not as large as its parts");
}

Verdict check_balance(const Op& op, Tensors) {
  const auto& params = std::get<BalanceParams>(op.params);
  if (params.sequence < 1) return Verdict::no("sequences have no length");
  return params.sequences >= 1 ? Verdict::yes() : Verdict::no("a loss is over no sequence");
}

Verdict check_limit(const Op& op, Tensors tensors) {
  const auto& params = std::get<LimitParams>(op.params);
  const Shape &experts = input_shape(op, tensors, 0), &counts = output_shape(op, tensors, 0);
  if (!is_matrix(experts) || params.sequence < 1 || experts[0] % params.sequence != 0)
    return Verdict::no("the tokens are not whole sequences");
  if (!is_matrix(counts) || counts[0] != experts[0] / params.sequence)
    return Verdict::no("counts are not [b,e]");
  if (params.capacity < 0 || params.ranks < 1) return Verdict::no("capacity or ranks are negative");
  if (op.outputs.size() == 1) return Verdict::yes();
  const Shape& kept = output_shape(op, tensors, 1);
  if (!is_matrix(kept) || kept[1] != experts[1] || experts[0] % (kept[0] * params.ranks) != 0)
    return Verdict::no("kept choices are not those of a rank's tokens");
  return Verdict::yes();
}

Verdict check_place(const Op& op, Tensors) {
  const auto& params = std::get<PlaceParams>(op.params);
  return params.parts >= 1 && params.rows >= 1 ? Verdict::yes()
                                               : Verdict::no("parts or rows are not positive");
}

Verdict check_received(const Op& op, Tensors tensors) {
  const auto& params = std::get<PlaceParams>(op.params);
  const Shape &all = input_shape(op, tensors, 0), &own = output_shape(op, tensors, 0);
  if (!is_matrix(all) || params.parts < 1 || all[1] != elements(own) * params.parts)
    return Verdict::no("ends are not of a part of the experts");
  return params.rows >= 1 ? Verdict::yes() : Verdict::no("rows are not positive");
}

Verdict check_row_collective(const Op& op, Tensors tensors) {
  const Shape &from = input_shape(op, tensors, 0), &all = input_shape(op, tensors, 1),
              &to = output_shape(op, tensors, 0);
  if (std::get<CollectiveParams>(op.params).group.axes.empty())
    return Verdict::no("group has no axes");
  if (!is_matrix(all)) return Verdict::no("ends are not [g,e]");
  if (from.empty() || to.empty() || columns(from) != columns(to))
    return Verdict::no("rows change their length");
  return Verdict::yes();
}

Verdict check_exchange(const Op& op, Tensors tensors) {
  const Shape& all = input_shape(op, tensors, 1);
  if (is_matrix(all) && all[1] % all[0] != 0)
    return Verdict::no("the experts are not equal parts for the ranks");
  return check_row_collective(op, tensors);
}

Verdict check_grouped_bias(const Op& op, Tensors) {
  return std::get<GroupedBiasParams>(op.params).ranks >= 1 ? Verdict::yes()
                                                           : Verdict::no("ranks are not positive");
}

}  // namespace plimsoll
