#include <cmath>

#include "base/error.h"
#include "graph/op_table.h"
#include "models/job.h"

namespace plimsoll {

namespace {

/// Writes one block op by op. Tensor names are BLOCK.NAME.
class BlockBuilder {
 public:
  BlockBuilder(Graph& graph, std::string name, BlockKind kind, std::int64_t count) : graph_(graph) {
    block_ = BlockId(graph.blocks.size());
    graph.blocks.push_back({std::move(name), kind, count, {}, {}, {}, {}});
  }

  BlockId block() const { return block_; }
  Block& definition() { return graph_.at(block_); }

  TensorId tensor(const std::string& name, Shape shape, DType dtype = DType::f32) {
    Tensor tensor;
    tensor.name = definition().name + "." + name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.block = block_;
    return graph_.add(std::move(tensor));
  }

  /// A parameter. `split_dim`: the dimension that tensor parallelism splits, if any.
  TensorId parameter(const std::string& name, Shape shape, Init init, double stddev,
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

  void op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
          OpParams params = {}) {
    Op op;
    op.kind = kind;
    op.block = block_;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.params = std::move(params);
    graph_.ops.push_back(std::move(op));
  }

  TensorId layer_norm(const std::string& name, TensorId x) {
    const Shape shape = graph_.at(x).shape;
    const TensorId gamma = parameter(name + ".gamma", {shape[1]}, Init::ones, 0, {});
    const TensorId beta = parameter(name + ".beta", {shape[1]}, Init::zeros, 0, {});
    const TensorId y = tensor(name + ".y", shape);
    const TensorId mean = tensor(name + ".mean", {shape[0]}),
                   rstd = tensor(name + ".rstd", {shape[0]});
    op(OpKind::layer_norm, {x, gamma, beta}, {y, mean, rstd}, NormParams{});
    return y;
  }

  /// y = x W + b with W [k, out...]. Column-parallel layers split a dimension of `out`,
  /// row-parallel ones dimension 0 of W.
  TensorId linear(const std::string& name, TensorId x, Shape out, double stddev,
                  std::int64_t split_dim) {
    const Shape x_shape = graph_.at(x).shape;
    Shape weight = {x_shape[1]}, y_shape = {x_shape[0]};
    weight.insert(weight.end(), out.begin(), out.end());
    y_shape.insert(y_shape.end(), out.begin(), out.end());
    const TensorId w = parameter(name + ".weight", weight, Init::normal, stddev, split_dim);
    std::optional<std::int64_t> bias_dim;
    if (split_dim > 0) bias_dim = split_dim - 1;
    const TensorId b = parameter(name + ".bias", out, Init::zeros, 0, bias_dim);
    const TensorId y = tensor(name + ".y", y_shape);
    op(OpKind::linear, {x, w, b}, {y}, MatmulParams{});
    return y;
  }

  TensorId add(const std::string& name, TensorId a, TensorId b) {
    const TensorId sum = tensor(name, graph_.at(a).shape);
    op(OpKind::add, {a, b}, {sum});
    return sum;
  }

 private:
  Graph& graph_;
  BlockId block_;
};

constexpr double kInitStddev = 0.02;  // GPT-2 (Radford et al. 2019), kept by GPT-3 and Megatron-LM

TensorId build_embedding(Graph& graph, const Job& job, std::int64_t tokens) {
  BlockBuilder block(graph, "embedding", BlockKind::embedding, 1);
  const TensorId word =
      block.parameter("word", {job.vocab, job.hidden}, Init::normal, kInitStddev, 0);
  const TensorId position =
      block.parameter("position", {job.sequence, job.hidden}, Init::normal, kInitStddev, {});
  const TensorId ids = block.tensor("tokens", {tokens}, DType::i32);
  block.op(OpKind::load_tokens, {}, {ids}, DataParams{job.sequence});
  const TensorId x = block.tensor("words", {tokens, job.hidden});
  block.op(OpKind::embedding, {ids, word}, {x}, VocabularyParams{.vocabulary = job.vocab});
  const TensorId y = block.tensor("output", {tokens, job.hidden});
  block.op(OpKind::position_add, {x, position}, {y});
  block.definition().output = y;
  return word;
}

TensorId build_attention(BlockBuilder& block, const Job& job, TensorId x, std::int64_t micro_batch,
                         double out_stddev) {
  const std::int64_t head = job.hidden / job.heads, tokens = micro_batch * job.sequence;
  const TensorId qkv = block.linear("qkv", x, {3, job.heads, head}, kInitStddev, 2);
  const Shape heads = {micro_batch, job.heads, job.sequence, head};
  const AttentionParams params{job.sequence, 1.0 / std::sqrt(double(head))};
  const AttentionParams fold{job.sequence, 1};
  const TensorId q = block.tensor("q", heads), k = block.tensor("k", heads),
                 v = block.tensor("v", heads);
  block.op(OpKind::split_heads, {qkv}, {q, k, v}, fold);
  const TensorId context = block.tensor("context", heads);
  block.op(OpKind::attention, {q, k, v}, {context}, params);
  const TensorId merged = block.tensor("merged", {tokens, job.hidden});
  block.op(OpKind::merge_heads, {context}, {merged}, fold);
  return block.linear("projection", merged, {job.hidden}, out_stddev, 0);
}

void build_layer(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, "layer", BlockKind::layer, job.layers);
  // Residual branches end with a smaller spread so that depth does not grow the sum (GPT-2).
  const double out_stddev = kInitStddev / std::sqrt(2.0 * double(job.layers));
  const TensorId x = block.tensor("input", {micro_batch * job.sequence, job.hidden});
  const TensorId attended =
      build_attention(block, job, block.layer_norm("norm1", x), micro_batch, out_stddev);
  const TensorId middle = block.add("middle", x, attended);
  const TensorId fc1 =
      block.linear("fc1", block.layer_norm("norm2", middle), {job.ffn_hidden}, kInitStddev, 1);
  const TensorId active = block.tensor("gelu", {micro_batch * job.sequence, job.ffn_hidden});
  block.op(OpKind::gelu, {fc1}, {active});
  const TensorId fc2 = block.linear("fc2", active, {job.hidden}, out_stddev, 0);
  block.definition().input = x;
  block.definition().output = block.add("output", middle, fc2);
}

void build_head(Graph& graph, const Job& job, std::int64_t tokens, TensorId word,
                TensorId scalars) {
  BlockBuilder block(graph, "head", BlockKind::head, 1);
  const TensorId x = block.tensor("input", {tokens, job.hidden});
  block.definition().input = x;
  const TensorId targets = block.tensor("targets", {tokens}, DType::i32);
  block.op(OpKind::load_targets, {}, {targets}, DataParams{job.sequence});
  const TensorId y = block.layer_norm("norm", x);
  const TensorId weight =
      block.parameter("weight", {job.vocab, job.hidden}, Init::normal, kInitStddev, 0);
  if (job.tied_embeddings) graph.at(weight).tied_to = word;
  const TensorId logits = block.tensor("logits", {tokens, job.vocab});
  block.op(OpKind::matmul, {y, weight}, {logits}, MatmulParams{.transpose_b = true});
  const VocabularyParams params{job.vocab, 1, 1.0 / double(job.global_batch * job.sequence)};
  const TensorId max = block.tensor("max", {tokens}), stats = block.tensor("stats", {tokens, 2});
  const TensorId log_sum_exp = block.tensor("log_sum_exp", {tokens});
  block.op(OpKind::logits_max, {logits}, {max}, params);
  block.op(OpKind::logits_sum_exp, {logits, max, targets}, {stats}, params);
  block.op(OpKind::token_loss, {max, stats, scalars}, {log_sum_exp, scalars}, params);
}

}  // namespace

Graph build_forward(const Job& job, std::int64_t micro_batch) {
  Graph graph;
  graph.name = job.name;
  const std::int64_t tokens = micro_batch * job.sequence;
  Tensor scalars;
  scalars.name = "scalars";
  scalars.role = TensorRole::scalar;
  scalars.shape = {kScalars};
  const TensorId scalars_id = graph.add(std::move(scalars));
  const TensorId word = build_embedding(graph, job, tokens);
  build_layer(graph, job, micro_batch);
  build_head(graph, job, tokens, word, scalars_id);
  return graph;
}

Flops forward_matmul_flops_per_sequence(const Job& job) {
  const double s = double(job.sequence), h = double(job.hidden), f = double(job.ffn_hidden);
  const double per_layer = 2 * s * h * 3 * h + 2 * s * h * h +
                           4 * s * h * f         // qkv, projection, fc1 + fc2
                           + 2 * 2 * s * s * h;  // q k^T and p v, full
  return Flops(double(job.layers) * per_layer + 2 * s * h * double(job.vocab));
}

}  // namespace plimsoll
