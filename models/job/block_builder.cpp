// The layers and ops that all families share are built here.
#include "models/job/block_builder.h"

#include <cmath>
#include <utility>

#include "base/error.h"

namespace plimsoll {

BlockBuilder::BlockBuilder(Graph& graph, const Job& job, std::int64_t micro_batch, std::string name,
                           BlockKind kind, std::int64_t count)
    : graph_(graph), job_(job), micro_batch_(micro_batch), block_(graph.blocks.size()) {
  graph.blocks.push_back({std::move(name), kind, count, {}, {}, {}, {}});
}

TensorId BlockBuilder::tensor(const std::string& name, Shape shape, DType dtype) {
  Tensor tensor;
  tensor.name = definition().name + "." + name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.block = block_;
  return graph_.add(std::move(tensor));
}

TensorId BlockBuilder::input(std::int64_t hidden) {
  const TensorId x = tensor("input", {tokens(), hidden});
  definition().input = x;
  return x;
}

void BlockBuilder::output(TensorId id) { definition().output = id; }

TensorId BlockBuilder::parameter(const std::string& name, Shape shape, Init init, double stddev,
                                 std::optional<std::int64_t> split_dim) {
  const TensorId id = tensor(name, std::move(shape));
  Tensor& parameter = graph_.at(id);
  parameter.role = TensorRole::parameter;
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

TensorId BlockBuilder::layer_norm(const std::string& name, TensorId x, double epsilon) {
  const Shape rows = shape(x);
  const TensorId gamma = parameter(name + ".gamma", {rows[1]}, Init::ones, 0, {});
  const TensorId beta = parameter(name + ".beta", {rows[1]}, Init::zeros, 0, {});
  const TensorId y = tensor(name + ".y", rows);
  const TensorId mean = tensor(name + ".mean", {rows[0]}), rstd = tensor(name + ".rstd", {rows[0]});
  op(OpKind::layer_norm, {x, gamma, beta}, {y, mean, rstd}, NormParams{epsilon});
  return y;
}

TensorId BlockBuilder::rms_norm(const std::string& name, TensorId x, double epsilon) {
  const Shape rows = shape(x), each(rows.begin(), rows.end() - 1);
  const TensorId gamma = parameter(name + ".gamma", {rows.back()}, Init::ones, 0, {});
  const TensorId y = tensor(name + ".y", rows), rstd = tensor(name + ".rstd", each);
  op(OpKind::rms_norm, {x, gamma}, {y, rstd}, NormParams{epsilon});
  return y;
}

TensorId BlockBuilder::linear(const std::string& name, TensorId x, const Linear& layer) {
  Shape weight = {shape(x)[1]}, y_shape = {shape(x)[0]};
  weight.insert(weight.end(), layer.out.begin(), layer.out.end());
  y_shape.insert(y_shape.end(), layer.out.begin(), layer.out.end());
  std::vector<TensorId> inputs = {
      x, parameter(name + ".weight", weight, Init::normal, layer.stddev, layer.split_dim)};
  if (layer.bias) {
    std::optional<std::int64_t> bias_dim;
    if (layer.split_dim.value_or(0) > 0) bias_dim = *layer.split_dim - 1;
    inputs.push_back(parameter(name + ".bias", layer.out, Init::zeros, 0, bias_dim));
  }
  const TensorId y = tensor(name + ".y", y_shape);
  op(OpKind::linear, std::move(inputs), {y}, MatmulParams{});
  return y;
}

TensorId BlockBuilder::add(const std::string& name, TensorId a, TensorId b) {
  const TensorId sum = tensor(name, shape(a));
  op(OpKind::add, {a, b}, {sum});
  return sum;
}

TensorId BlockBuilder::gelu(const std::string& name, TensorId x) {
  const TensorId y = tensor(name, shape(x));
  op(OpKind::gelu, {x}, {y});
  return y;
}

DropoutParams BlockBuilder::next_dropout() {
  DropoutParams params;
  params.rate = job_.dropout;
  params.seed = job_.seed;
  for (const Op& op : graph_.ops) {
    if (op.kind == OpKind::dropout || op.kind == OpKind::attention) ++params.site;
  }
  return params;
}

TensorId BlockBuilder::dropout(const std::string& name, TensorId x) {
  if (job_.dropout == 0) return x;
  const DropoutParams params = next_dropout();
  const TensorId y = tensor(name, shape(x));
  op(OpKind::dropout, {x}, {y}, params);
  return y;
}

TensorId BlockBuilder::rotated(TensorId x, std::int64_t parts, const std::string& name) {
  const TensorId y = tensor(name, shape(x));
  op(OpKind::rotary, {x}, {y},
     RotaryParams{.sequence = job_.sequence,
                  .rotated = parts,
                  .width = job_.rotary_fraction == 1 ? 0 : rotary_width(job_),
                  .base = job_.rotary_base});
  return y;
}

/// Returns the width of a head, which is not hidden / heads where the job says so.
static std::int64_t width_of_head(const BlockBuilder::Attention& kind) {
  return kind.head_width > 0 ? kind.head_width : kind.hidden / kind.heads;
}

/// As many key and value heads as query heads: one linear layer [n,3,a,d] gives all three.
BlockBuilder::Heads BlockBuilder::split_fused(TensorId x, const Attention& kind) {
  const std::int64_t depth = width_of_head(kind);
  TensorId qkv =
      linear("qkv", x, {.out = {3, kind.heads, depth}, .split_dim = 2, .bias = kind.qkv_bias});
  if (kind.rotary) qkv = rotated(qkv, 2, "rotated");
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
                      {.out = {1, kind.heads, depth}, .split_dim = 2, .bias = kind.qkv_bias});
  TensorId pair =
      linear("kv_projection", x, {.out = {2, kv, depth}, .split_dim = 2, .bias = kind.qkv_bias});
  if (kind.rotary) {
    q = rotated(q, 1, "rotated");
    pair = rotated(pair, 1, "rotated_kv");
  }
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

/// Queries and keys are normed head by head before they are turned. Values are not, so that each of
/// the three has a linear layer: backward keeps queries and keys of before the norm, and values
/// once. Frameworks that compute one product and split it behind move as many bytes.
BlockBuilder::Heads BlockBuilder::split_normed(TensorId x, const Attention& kind) {
  const std::int64_t depth = width_of_head(kind), kv = kind.kv_heads, s = job_.sequence;
  const auto part = [&](const std::string& name, std::int64_t heads, bool is_normed) {
    TensorId y = linear(name + "_projection", x,
                        {.out = {1, heads, depth}, .split_dim = 2, .bias = kind.qkv_bias});
    if (!is_normed) return y;
    y = rms_norm(name + "_norm", y, *kind.qk_norm_epsilon);
    return kind.rotary ? rotated(y, 1, "rotated_" + name) : y;
  };
  const TensorId q = part("q", kind.heads, true), k = part("k", kv, true), v = part("v", kv, false);
  const Shape queries = {micro_batch_, kv, kind.heads / kv * s, depth};
  const Shape keys = {micro_batch_, kv, s, depth};
  return {heads_of(q, "q", queries), heads_of(k, "k", keys), heads_of(v, "v", keys)};
}

BlockBuilder::Heads BlockBuilder::split(TensorId x, const Attention& kind) {
  if (kind.qk_norm_epsilon) return split_normed(x, kind);
  return kind.kv_heads == kind.heads ? split_fused(x, kind) : split_grouped(x, kind);
}

TensorId BlockBuilder::attention(TensorId x, const Attention& kind) {
  const Heads heads = split(x, kind);
  const std::int64_t depth = width_of_head(kind);
  AttentionParams params;
  params.sequence = job_.sequence;
  params.scale = 1.0 / std::sqrt(double(depth));
  params.causal = kind.causal;
  if (job_.window < job_.sequence) params.window = job_.window;
  if (job_.dropout > 0) {
    const DropoutParams draws = next_dropout();
    params.dropout = draws.rate;
    params.seed = draws.seed;
    params.site = draws.site;
  }
  const TensorId context = tensor("context", shape(heads.q));
  op(OpKind::attention, {heads.q, heads.k, heads.v}, {context}, params);
  const TensorId merged = tensor("merged", {tokens(), kind.heads * depth});
  op(OpKind::merge_heads, {context}, {merged}, AttentionParams{.sequence = job_.sequence});
  return linear(
      "projection", merged,
      {.out = {kind.hidden}, .stddev = kind.out_stddev, .split_dim = 0, .bias = kind.out_bias});
}

TensorId BlockBuilder::logits(TensorId y, std::optional<TensorId> tied_to) {
  const std::int64_t hidden = shape(y)[1];
  const TensorId weight = parameter("weight", {job_.vocab, hidden}, Init::normal, kInitStddev, 0);
  graph_.at(weight).tied_to = tied_to;
  const TensorId logits = tensor("logits", {shape(y)[0], job_.vocab});
  op(OpKind::matmul, {y, weight}, {logits}, MatmulParams{.transpose_b = true});
  return logits;
}

void BlockBuilder::loss(TensorId logits, TensorId targets, TensorId scalars, std::int64_t count) {
  const std::int64_t rows = shape(logits)[0];
  const VocabularyParams params{job_.vocab, 1, 1.0 / double(count)};
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
