// GPT (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"): x = wte[tokens]
// + wpe; per layer x += proj(attention(ln1(x))), x += fc2(gelu(fc1(ln2(x)))); head: ln_f, logits
// with the embedding's table or one of its own. Linear layers have biases, the head has none. Keys
// and values may have fewer heads (--group-query-attention of Megatron-LM). Dropout on the
// embeddings, on attention probabilities and on both residual branches (resid_pdrop, embd_pdrop and
// attn_pdrop of the released model; --hidden-dropout and --attention-dropout of Megatron-LM).
#include <cmath>

#include "models/job/block_builder.h"

namespace plimsoll {

namespace {

TensorId build_gpt_embedding(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, job, micro_batch, "embedding", BlockKind::embedding);
  const TensorId word =
      block.parameter("word", {job.vocab, job.hidden}, Init::normal, kInitStddev, 0);
  const TensorId position =
      block.parameter("position", {job.sequence, job.hidden}, Init::normal, kInitStddev, {});
  const TensorId ids = block.tensor("tokens", {block.tokens()}, DType::i32);
  block.op(OpKind::load_tokens, {}, {ids}, DataParams{job.sequence});
  const TensorId x = block.tensor("words", {block.tokens(), job.hidden});
  block.op(OpKind::embedding, {ids, word}, {x}, VocabularyParams{.vocabulary = job.vocab});
  const TensorId y = block.tensor(job.dropout > 0 ? "placed" : "output", block.shape(x));
  block.op(OpKind::position_add, {x, position}, {y});
  block.output(block.dropout("output", y));
  return word;
}

void build_layer(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, job, micro_batch, "layer", BlockKind::layer, job.layers);
  // Residual branches end with a smaller spread so that depth does not grow the sum (GPT-2).
  const double out_stddev = kInitStddev / std::sqrt(2.0 * double(job.layers));
  const TensorId x = block.input(job.hidden);
  const TensorId attended =
      block.attention(block.layer_norm("norm1", x, epsilon_of(job)), {.heads = job.heads,
                                                                      .kv_heads = job.kv_heads,
                                                                      .hidden = job.hidden,
                                                                      .out_stddev = out_stddev});
  const TensorId middle = block.add("middle", x, block.dropout("attended", attended));
  const TensorId fc1 =
      block.linear("fc1", block.layer_norm("norm2", middle, epsilon_of(job)),
                   {.out = {job.ffn_hidden}, .split_dim = 1, .target = AdapterTarget::up});
  const TensorId fc2 = block.linear(
      "fc2", block.gelu("gelu", fc1),
      {.out = {job.hidden}, .stddev = out_stddev, .split_dim = 0, .target = AdapterTarget::down});
  block.output(block.add("output", middle, block.dropout("fed", fc2)));
}

void build_gpt_head(Graph& graph, const Job& job, std::int64_t micro_batch, TensorId word,
                    TensorId scalars) {
  BlockBuilder block(graph, job, micro_batch, "head", BlockKind::head);
  const TensorId x = block.input(job.hidden);
  const TensorId targets = block.tensor("targets", {block.tokens()}, DType::i32);
  block.op(OpKind::load_targets, {}, {targets}, DataParams{job.sequence});
  const TensorId y = block.layer_norm("norm", x, epsilon_of(job));
  std::optional<TensorId> tied;
  if (job.tied_embeddings) tied = word;
  block.loss(block.logits(y, tied), targets, scalars, job.global_batch * job.sequence);
}

}  // namespace

Graph build_gpt(const Job& job, std::int64_t micro_batch) {
  auto [graph, scalars] = empty_graph(job);
  const TensorId word = build_gpt_embedding(graph, job, micro_batch);
  build_layer(graph, job, micro_batch);
  build_gpt_head(graph, job, micro_batch, word, scalars);
  return std::move(graph);
}

}  // namespace plimsoll
