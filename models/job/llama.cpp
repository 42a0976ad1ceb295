// LLaMA (Touvron et al. 2023, arXiv 2302.13971 section 2.2 and 2307.09288 section 2.2): x =
// wte[tokens]; per layer x += proj(attention(rms(x))) with rotary position embeddings and grouped
// queries, x += down(silu(gate(rms(x))) * up(rms(x))); head: rms, logits with a table of its own or
// the embedding's. No biases, but for query, key and value in Qwen2 (arXiv 2407.10671
// section 2.2.1). Nemotron-4 (Parmar et al. 2024, arXiv 2402.16819, section 2) has layer norms for
// rms, and x += down(relu(up(norm(x)))^2).
#include <cmath>

#include "models/job/block_builder.h"

namespace plimsoll {

namespace {

constexpr double kEpsilon = 1e-5;  // of norms (rms_norm_eps of Llama 2 and 3)

TensorId norm(BlockBuilder& block, const Job& job, const std::string& name, TensorId x) {
  return job.norm == NormKind::rms_norm ? block.rms_norm(name, x, kEpsilon)
                                        : block.layer_norm(name, x, kEpsilon);
}

/// The MLP up to what `down` reads.
TensorId active(BlockBuilder& block, const Job& job, TensorId x) {
  if (job.activation == Activation::squared_relu) {
    const TensorId up =
        block.linear("up", x, {.out = {job.ffn_hidden}, .split_dim = 1, .bias = false});
    const TensorId squared = block.tensor("squared_relu", block.shape(up));
    block.op(OpKind::squared_relu, {up}, {squared});
    return squared;
  }
  const TensorId gates =
      block.linear("gate_up", x, {.out = {2, job.ffn_hidden}, .split_dim = 2, .bias = false});
  const TensorId product = block.tensor("swiglu", {block.tokens(), job.ffn_hidden});
  block.op(OpKind::swiglu, {gates}, {product});
  return product;
}

TensorId build_embedding(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, job, micro_batch, "embedding", BlockKind::embedding);
  const TensorId word =
      block.parameter("word", {job.vocab, job.hidden}, Init::normal, kInitStddev, 0);
  const TensorId ids = block.tensor("tokens", {block.tokens()}, DType::i32);
  block.op(OpKind::load_tokens, {}, {ids}, DataParams{job.sequence});
  const TensorId x =
      block.tensor(job.dropout > 0 ? "words" : "output", {block.tokens(), job.hidden});
  block.op(OpKind::embedding, {ids, word}, {x}, VocabularyParams{.vocabulary = job.vocab});
  block.output(block.dropout("output", x));
  return word;
}

void build_layer(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, job, micro_batch, "layer", BlockKind::layer, job.layers);
  const double out_stddev = kInitStddev / std::sqrt(2.0 * double(job.layers));
  const TensorId x = block.input(job.hidden);
  const TensorId attended =
      block.attention(norm(block, job, "norm1", x), {.heads = job.heads,
                                                     .kv_heads = job.kv_heads,
                                                     .hidden = job.hidden,
                                                     .qkv_bias = job.qkv_bias,
                                                     .out_bias = false,
                                                     .rotary = true,
                                                     .out_stddev = out_stddev});
  const TensorId middle = block.add("middle", x, block.dropout("attended", attended));
  const TensorId fed = active(block, job, norm(block, job, "norm2", middle));
  const TensorId down = block.linear(
      "down", fed, {.out = {job.hidden}, .stddev = out_stddev, .split_dim = 0, .bias = false});
  block.output(block.add("output", middle, block.dropout("fed", down)));
}

void build_head(Graph& graph, const Job& job, std::int64_t micro_batch, TensorId word,
                TensorId scalars) {
  BlockBuilder block(graph, job, micro_batch, "head", BlockKind::head);
  const TensorId x = block.input(job.hidden);
  const TensorId targets = block.tensor("targets", {block.tokens()}, DType::i32);
  block.op(OpKind::load_targets, {}, {targets}, DataParams{job.sequence});
  const TensorId y = norm(block, job, "norm", x);
  std::optional<TensorId> tied;
  if (job.tied_embeddings) tied = word;
  block.loss(block.logits(y, tied), targets, scalars, job.global_batch * job.sequence);
}

}  // namespace

Graph build_llama(const Job& job, std::int64_t micro_batch) {
  auto [graph, scalars] = empty_graph(job);
  const TensorId word = build_embedding(graph, job, micro_batch);
  build_layer(graph, job, micro_batch);
  build_head(graph, job, micro_batch, word, scalars);
  return std::move(graph);
}

}  // namespace plimsoll
