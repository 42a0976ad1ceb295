// The layers and ops that all families share are built here.
#include "models/job/block_builder.h"

#include <cmath>
#include <utility>

#include "models/job/examples.h"

namespace plimsoll {

BlockBuilder::BlockBuilder(Graph& graph, const Job& job, std::int64_t micro_batch, std::string name,
                           BlockKind kind, std::int64_t count)
    : graph_(graph), job_(job), micro_batch_(micro_batch), block_(graph.blocks.size()) {
  Block block;
  block.name = std::move(name);
  block.kind = kind;
  block.count = count;
  graph.blocks.push_back(std::move(block));
}

TensorId BlockBuilder::tensor(const std::string& name, Shape shape, DType dtype) {
  Tensor tensor;
  tensor.name = definition().name + "." + name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.block = block_;
  return graph_.add(std::move(tensor));
}

TensorId BlockBuilder::state(const std::string& name, Shape shape) {
  const TensorId id = tensor(name, std::move(shape));
  graph_.at(id).role = TensorRole::scalar;
  return id;
}

TensorId BlockBuilder::input(std::int64_t hidden, std::int64_t rows) {
  const TensorId x = tensor("input", {rows * tokens(), hidden});
  definition().input = x;
  return x;
}

void BlockBuilder::output(TensorId id) { definition().output = id; }

TensorId BlockBuilder::parameter(const std::string& name, Shape shape, Init init, double stddev,
                                 std::optional<std::int64_t> split_dim) {
  const TensorId id = tensor(name, std::move(shape));
  Tensor& parameter = graph_.at(id);
  parameter.role = job_.adapters ? TensorRole::frozen_parameter : TensorRole::parameter;
  parameter.init = init;
  parameter.init_stddev = stddev;
  parameter.decay = init == Init::normal;  // weights and embeddings, not biases and norms
  if (split_dim) parameter.split = Split{*split_dim, Axis::mp, 1};
  return id;
}

void BlockBuilder::op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                      OpParams params) {
  Op op;
  op.kind = kind;
  op.block = block_;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.params = std::move(params);
  graph_.ops.push_back(std::move(op));
}

TensorId BlockBuilder::layer_norm(const std::string& name, TensorId x, double epsilon, bool bias) {
  const Shape rows = shape(x);
  std::vector<TensorId> inputs = {x, parameter(name + ".gamma", {rows[1]}, Init::ones, 0, {})};
  if (bias) inputs.push_back(parameter(name + ".beta", {rows[1]}, Init::zeros, 0, {}));
  const TensorId y = tensor(name + ".y", rows);
  const TensorId mean = tensor(name + ".mean", {rows[0]}), rstd = tensor(name + ".rstd", {rows[0]});
  op(OpKind::layer_norm, std::move(inputs), {y, mean, rstd}, NormParams{epsilon});
  return y;
}

TensorId BlockBuilder::rms_norm(const std::string& name, TensorId x, double epsilon,
                                std::size_t dims) {
  const Shape rows = shape(x), each(rows.begin(), rows.end() - std::ptrdiff_t(dims)),
              row(rows.end() - std::ptrdiff_t(dims), rows.end());
  const TensorId gamma = parameter(name + ".gamma", {elements(row)}, Init::ones, 0, {});
  const TensorId y = tensor(name + ".y", rows), rstd = tensor(name + ".rstd", each);
  op(OpKind::rms_norm, {x, gamma}, {y, rstd}, NormParams{epsilon});
  return y;
}

TensorId BlockBuilder::plain_norm(const std::string& name, TensorId x, double epsilon) {
  const Shape rows = shape(x);
  const TensorId y = tensor(name + ".y", rows),
                 rstd = tensor(name + ".rstd", {rows.begin(), rows.end() - 1});
  op(OpKind::rms_norm, {x}, {y, rstd}, NormParams{epsilon});
  return y;
}

TensorId BlockBuilder::linear(const std::string& name, TensorId x, const Linear& layer) {
  Shape weight = {shape(x)[1]}, y_shape = {shape(x)[0]};
  weight.insert(weight.end(), layer.out.begin(), layer.out.end());
  y_shape.insert(y_shape.end(), layer.out.begin(), layer.out.end());
  std::vector<TensorId> inputs = {x, matrix(name + ".weight", weight, layer)};
  if (layer.bias) {
    std::optional<std::int64_t> bias_dim;
    if (layer.split_dim.value_or(0) > 0) bias_dim = *layer.split_dim - 1;
    inputs.push_back(parameter(name + ".bias", layer.out, Init::zeros, 0, bias_dim));
  }
  const bool has_adapter = layer.target && adapts(*layer.target);
  const TensorId y = tensor(name + (has_adapter ? ".base" : ".y"), y_shape);
  op(OpKind::linear, std::move(inputs), {y}, MatmulParams{});
  return has_adapter ? adapted(name, x, y, layer) : y;
}

/// Adds the weight of a linear layer. The layers' frozen ones may have 4 bits.
TensorId BlockBuilder::matrix(const std::string& name, const Shape& shape, const Linear& layer) {
  const TensorId id = parameter(name, shape, Init::normal, layer.stddev, layer.split_dim);
  const bool packs = job_.frozen_weights != FrozenWeights::computed &&
                     definition().kind == BlockKind::layer &&
                     graph_.at(id).role == TensorRole::frozen_parameter;
  if (!packs) return id;
  const bool nested = job_.frozen_weights == FrozenWeights::nf4_nested;
  Tensor& packed = graph_.at(id);
  packed.packed = shape;
  packed.shape = {packed_bytes(elements(shape), nested)};
  packed.dtype = DType::u8;
  packed.split.reset();
  const TensorId unpacked = tensor(name + ".unpacked", shape);
  op(OpKind::unpack_weight, {id}, {unpacked}, PackParams{nested});
  return unpacked;
}

TensorId BlockBuilder::adapter(const std::string& name, Shape shape, Init init,
                               std::optional<std::int64_t> split_dim) {
  const TensorId id = parameter(name, std::move(shape), init, kInitStddev, split_dim);
  graph_.at(id).role = TensorRole::parameter;
  graph_.at(id).decay = true;
  return id;
}

/// Adds y + scale dropout(x) A B. A is split as a row-parallel layer is, and B as a column-parallel
/// one, so that only the narrow columns in between are exchanged.
TensorId BlockBuilder::adapted(const std::string& name, TensorId x, TensorId y,
                               const Linear& layer) {
  const Adapters& adapters = *job_.adapters;
  const bool by_rows = layer.split_dim == 0;
  // The products of qkv share one A, and so do those of kv_down.
  const bool shares =
      *layer.target == AdapterTarget::qkv || *layer.target == AdapterTarget::kv_down;
  TensorId narrow = shares && narrow_ ? *narrow_ : y;
  if (!shares || !narrow_) {
    TensorId read = x;
    if (adapters.dropout > 0) {
      const DropoutParams params = next_dropout(adapters.dropout);
      read = tensor(name + ".dropped", shape(x));
      op(OpKind::dropout, {x}, {read}, params);
    }
    const TensorId a = adapter(name + ".adapter_a", {shape(x)[1], adapters.rank}, Init::normal,
                               by_rows ? std::optional<std::int64_t>(0) : std::nullopt);
    narrow = tensor(name + ".narrow", {shape(x)[0], adapters.rank});
    op(OpKind::linear, {read, a}, {narrow}, MatmulParams{});
    if (shares) narrow_ = narrow;
  }
  Shape wide = {adapters.rank};
  wide.insert(wide.end(), layer.out.begin(), layer.out.end());
  const TensorId b = adapter(name + ".adapter_b", std::move(wide), Init::zeros,
                             by_rows ? std::nullopt : layer.split_dim);
  const TensorId delta = tensor(name + ".delta", shape(y));
  op(OpKind::linear, {narrow, b}, {delta}, MatmulParams{});
  return add(name + ".y", y, multiply(name + ".scaled", delta, adapters.scale));
}

TensorId BlockBuilder::add(const std::string& name, TensorId a, TensorId b) {
  const TensorId sum = tensor(name, shape(a));
  op(OpKind::add, {a, b}, {sum});
  return sum;
}

TensorId BlockBuilder::gelu(const std::string& name, TensorId x) {
  const TensorId y = tensor(name, shape(x));
  op(OpKind::gelu, {x}, {y}, ActivationParams{.exact = job_.activation_params.exact});
  return y;
}

TensorId BlockBuilder::multiply(const std::string& name, TensorId x, double factor) {
  if (factor == 1) return x;
  const TensorId y = tensor(name, shape(x));
  op(OpKind::multiply, {x}, {y}, FactorParams{factor});
  return y;
}

DropoutParams BlockBuilder::next_dropout(double rate) {
  DropoutParams params;
  params.rate = rate;
  params.seed = job_.seed;
  for (const Op& op : graph_.ops) {
    if (op.kind == OpKind::dropout || op.kind == OpKind::attention) ++params.site;
  }
  return params;
}

TensorId BlockBuilder::dropout(const std::string& name, TensorId x) {
  if (job_.dropout == 0) return x;
  const DropoutParams params = next_dropout(job_.dropout);
  const TensorId y = tensor(name, shape(x));
  op(OpKind::dropout, {x}, {y}, params);
  return y;
}

/// Turns the first parts of x if the layer turns any. Queries, which are the first one, may grow.
TensorId BlockBuilder::rotated(TensorId x, std::int64_t parts, const std::string& name,
                               const Attention& kind, const QueryGrowth& growth) {
  if (!kind.rotary && growth.span == 0) return x;
  const TensorId y = tensor(name, shape(x));
  op(OpKind::rotary, {x}, {y},
     RotaryParams{.sequence = job_.sequence,
                  .rotated = kind.rotary ? parts : 0,
                  .width = rotary_width(job_) == shape(x).back() ? 0 : rotary_width(job_),
                  .base = kind.rotary_base,
                  .scale = kind.rotary_scale,
                  .growth = growth});
  return y;
}

/// Returns the width of a head, which is not hidden / heads where the job says so.
static std::int64_t width_of_head(const BlockBuilder::Attention& kind) {
  return kind.head_width > 0 ? kind.head_width : kind.hidden / kind.heads;
}

/// As many key and value heads as query heads: one linear layer [n,3,a,d] gives all three.
BlockBuilder::Heads BlockBuilder::split_fused(TensorId x, const Attention& kind) {
  const std::int64_t depth = width_of_head(kind);
  const TensorId product = linear("qkv", x,
                                  {.out = {3, kind.heads, depth},
                                   .split_dim = 2,
                                   .bias = kind.qkv_bias,
                                   .target = AdapterTarget::qkv});
  const TensorId qkv = rotated(product, 2, "rotated", kind, kind.growth);
  const Shape heads = {micro_batch_, kind.heads, job_.sequence, depth};
  const Heads split{tensor("q", heads), tensor("k", heads), tensor("v", heads)};
  op(OpKind::split_heads, {qkv}, {split.q, split.k, split.v},
     AttentionParams{.sequence = job_.sequence});
  return split;
}

/// Grouped queries: g = heads / kv_heads of them per key and value head. q is [b,kv,g*s,d], the
/// same memory as [b,a,s,d], so that keys and values need not be repeated.
BlockBuilder::Heads BlockBuilder::split_grouped(TensorId x, const Attention& kind) {
  const std::int64_t depth = width_of_head(kind), kv = kind.kv_heads, s = job_.sequence;
  TensorId q = linear("q_projection", x,
                      {.out = {1, kind.heads, depth},
                       .split_dim = 2,
                       .bias = kind.qkv_bias,
                       .target = AdapterTarget::qkv});
  TensorId pair = linear(
      "kv_projection", x,
      {.out = {2, kv, depth}, .split_dim = 2, .bias = kind.qkv_bias, .target = AdapterTarget::qkv});
  q = rotated(q, 1, "rotated", kind, kind.growth);
  pair = rotated(pair, 1, "rotated_kv", kind);
  const Shape keys = {micro_batch_, kv, s, depth};
  const Heads split{tensor("q", {micro_batch_, kv, kind.heads / kv * s, depth}), tensor("k", keys),
                    tensor("v", keys)};
  op(OpKind::split_heads, {q}, {split.q}, AttentionParams{.sequence = s});
  op(OpKind::split_heads, {pair}, {split.k, split.v}, AttentionParams{.sequence = s});
  return split;
}

TensorId BlockBuilder::heads_of(TensorId x, const std::string& name, const Shape& shape) {
  const TensorId heads = tensor(name, shape);
  op(OpKind::split_heads, {x}, {heads}, AttentionParams{.sequence = job_.sequence});
  return heads;
}

/// Norms each head, or with one statistic all heads of a token at once.
TensorId BlockBuilder::normed_heads(TensorId x, const std::string& name, const Attention& kind) {
  if (!kind.qk_norm_weight) return plain_norm(name + "_norm", x, *kind.qk_norm_epsilon);
  return rms_norm(name + "_norm", x, *kind.qk_norm_epsilon,
                  kind.qk_norm_across_heads ? shape(x).size() - 1 : 1);
}

/// Queries and keys are normed head by head, or all heads at once (OLMo 2), before they are turned.
/// Values are not, so that each of the three has a linear layer: backward keeps queries and keys of
/// before the norm, and values once. Frameworks that compute one product and split it behind move
/// as many bytes. Separate adapters need separate products, normed or not.
BlockBuilder::Heads BlockBuilder::split_apart(TensorId x, const Attention& kind) {
  const std::int64_t depth = width_of_head(kind), kv = kind.kv_heads, s = job_.sequence;
  const auto part = [&](const std::string& name, std::int64_t heads, AdapterTarget target) {
    const bool fused = adapts(AdapterTarget::qkv);
    TensorId y = linear(name + "_projection", x,
                        {.out = {1, heads, depth},
                         .split_dim = 2,
                         .bias = kind.qkv_bias,
                         .target = fused ? AdapterTarget::qkv : target});
    if (target == AdapterTarget::value) return y;
    if (kind.qk_norm_epsilon) y = normed_heads(y, name, kind);
    const bool queries = target == AdapterTarget::query;
    return rotated(y, 1, "rotated_" + name, kind, queries ? kind.growth : QueryGrowth());
  };
  const TensorId q = part("q", kind.heads, AdapterTarget::query),
                 k = part("k", kv, AdapterTarget::key), v = part("v", kv, AdapterTarget::value);
  const Shape queries = {micro_batch_, kv, kind.heads / kv * s, depth};
  const Shape keys = {micro_batch_, kv, s, depth};
  return {heads_of(q, "q", queries), heads_of(k, "k", keys), heads_of(v, "v", keys)};
}

/// Multi-head latent attention in the form of training: keys and values of all heads are built
/// (DeepSeek-V2, arXiv 2405.04434, section 2.1 and appendix C). The columns that are turned come
/// first in each head, an order that random weights do not know. The shared rope key is a product
/// of its own; frameworks append its columns to the product of the latent.
BlockBuilder::Heads BlockBuilder::split_latent(TensorId x, const Attention& kind) {
  const Latent& latent = *job_.latent;
  const std::int64_t heads = kind.heads, s = job_.sequence, width = latent.nope + latent.rope;
  using enum AdapterTarget;
  const auto narrow = [&](const std::string& name, std::int64_t rank, AdapterTarget target) {
    const TensorId y = linear(name + "_down", x, {.out = {rank}, .bias = false, .target = target});
    return rms_norm(name + "_latent", y, kind.latent_epsilon);
  };
  const auto by_heads = [&](const char* name, TensorId from, std::int64_t columns,
                            AdapterTarget target) {
    return linear(name, from,
                  {.out = {1, heads, columns}, .split_dim = 2, .bias = false, .target = target});
  };
  TensorId q = latent.q_rank > 0
                   ? by_heads("q_up", narrow("q", latent.q_rank, query_down), width, query_up)
                   : by_heads("q_projection", x, width, query);
  q = rotated(q, 1, "rotated_q", kind, kind.growth);
  const TensorId kv_latent = narrow("kv", latent.kv_rank, kv_down);
  const TensorId rope_key =
      linear("rope_key", x, {.out = {1, 1, latent.rope}, .bias = false, .target = kv_down});
  const TensorId rope = rotated(rope_key, 1, "rotated_key", kind);
  const TensorId kv = by_heads("kv_up", kv_latent, latent.nope + latent.value, kv_up);
  const TensorId k = tensor("key", {tokens(), 1, heads, width}),
                 v = tensor("value", {tokens(), 1, heads, latent.value});
  op(OpKind::share_rope_key, {kv, rope}, {k, v});
  return {heads_of(q, "q", {micro_batch_, heads, s, width}),
          heads_of(k, "k", {micro_batch_, heads, s, width}),
          heads_of(v, "v", {micro_batch_, heads, s, latent.value})};
}

BlockBuilder::Heads BlockBuilder::split(TensorId x, const Attention& kind) {
  if (job_.latent) return split_latent(x, kind);
  const bool apart =
      adapts(AdapterTarget::query) || adapts(AdapterTarget::key) || adapts(AdapterTarget::value);
  if (kind.qk_norm_epsilon || apart) return split_apart(x, kind);
  return kind.kv_heads == kind.heads ? split_fused(x, kind) : split_grouped(x, kind);
}

TensorId BlockBuilder::attention(TensorId x, const Attention& kind) {
  const Heads heads = split(x, kind);
  AttentionParams params;
  params.sequence = job_.sequence;
  const double per_column = 1.0 / std::sqrt(double(shape(heads.q).back()));
  params.scale = kind.score_factor * per_column;
  params.causal = kind.causal;
  if (kind.window < job_.sequence) params.window = kind.window;
  params.chunks = kind.chunks && params.window > 0;
  if (!job_.lengths.empty()) params.within_examples = share_of_scores(job_, params);
  params.soft_cap = kind.score_cap;
  if (kind.alibi) params.alibi_heads = kind.heads;
  if (kind.alibi_scaled) params.alibi_scale = per_column;
  if (job_.dropout > 0) {
    const DropoutParams draws = next_dropout(job_.dropout);
    params.dropout = draws.rate;
    params.seed = draws.seed;
    params.site = draws.site;
  }
  Shape rows = shape(heads.q);
  rows.back() = shape(heads.v).back();
  const std::int64_t columns = kind.heads * rows.back();
  const TensorId context = tensor("context", rows);
  std::vector<TensorId> inputs = {heads.q, heads.k, heads.v};
  if (kind.sinks) inputs.push_back(parameter("sinks", {kind.heads}, Init::zeros, 0, 0));
  op(OpKind::attention, std::move(inputs), {context}, params);
  TensorId merged = tensor("merged", {tokens(), columns});
  op(OpKind::merge_heads, {context}, {merged}, AttentionParams{.sequence = job_.sequence});
  if (kind.gate) {
    const TensorId gate =
        linear("gate", x, {.out = {columns}, .split_dim = 1, .bias = kind.qkv_bias});
    const TensorId gated = tensor("gated", shape(merged));
    op(OpKind::gate_values, {merged, gate}, {gated});
    merged = gated;
  }
  return linear("projection", merged,
                {.out = {kind.hidden},
                 .stddev = kind.out_stddev,
                 .split_dim = 0,
                 .bias = kind.out_bias,
                 .target = AdapterTarget::out});
}

TensorId BlockBuilder::logits(TensorId y, std::optional<TensorId> tied_to) {
  const std::int64_t hidden = shape(y)[1];
  const TensorId weight = parameter("weight", {job_.vocab, hidden}, Init::normal, kInitStddev, 0);
  graph_.at(weight).tied_to = tied_to;
  const Shape rows = {shape(y)[0], job_.vocab};
  std::vector<TensorId> inputs = {y, weight};
  if (job_.head_bias) inputs.push_back(parameter("bias", {job_.vocab}, Init::zeros, 0, 0));
  const TensorId product = tensor("logits", rows);
  op(OpKind::matmul, std::move(inputs), {product}, MatmulParams{.transpose_b = true});
  const TensorId logits = multiply("scaled_logits", product, job_.factors.logits);
  if (job_.logit_cap == 0) return logits;
  const TensorId capped = tensor("capped", rows);
  op(OpKind::soft_cap, {logits}, {capped}, CapParams{job_.logit_cap});
  return capped;
}

void BlockBuilder::loss(TensorId logits, TensorId targets, TensorId scalars, std::int64_t count) {
  const std::int64_t rows = shape(logits)[0];
  VocabularyParams params{job_.vocab, 1, 1.0 / double(count)};
  if (job_.mtp) {
    params.depths = 1 + job_.mtp->depths;
    params.depth_weight = job_.mtp->loss_weight / double(job_.mtp->depths);
  }
  if (job_.mtp || !job_.lengths.empty()) params.sequence = job_.sequence;
  const TensorId max = tensor("max", {rows}), stats = tensor("stats", {rows, 2});
  const TensorId log_sum_exp = tensor("log_sum_exp", {rows});
  op(OpKind::logits_max, {logits}, {max}, params);
  op(OpKind::logits_sum_exp, {logits, max, targets}, {stats}, params);
  op(OpKind::token_loss, {max, stats, scalars}, {log_sum_exp, scalars}, params);
}

EmptyGraph empty_graph(const Job& job) {
  EmptyGraph result;
  result.graph.name = job.name;
  Tensor scalars;
  scalars.name = "scalars";
  scalars.role = TensorRole::scalar;
  scalars.shape = {kScalars};
  result.scalars = result.graph.add(std::move(scalars));
  return result;
}

}  // namespace plimsoll
