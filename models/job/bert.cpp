// BERT (Devlin et al. 2019, arXiv 1810.04805) and ERNIE 3.0's trunk and branch.
//
// Embedding: norm(word + position + token type). Per layer x = norm(x + proj(attention(x))), x =
// norm(x + fc2(gelu(fc1(x)))), attention in both directions. Loss: masked language model, section
// 3.1 and appendix A.1: a share of the positions is predicted, of which 80 % are hidden from the
// input, 10 % are replaced by a random token and 10 % are left. As in the released code the head
// works on the predicted positions only. Next-sentence prediction is left out (Liu et al. 2019,
// arXiv 1907.11692, section 4.2), and of the head its norm and output bias; its dense layer stands
// where `pooler` asks for it: it has as many parameters as the pooler that next-sentence prediction
// reads.
//
// ERNIE (Sun et al. 2021, arXiv 2107.02137, section 3.1; sizes: Paddle pull request 35878): a trunk
// shared between tasks, then a narrower branch of the task, here joined by a linear layer with
// bias, and the branch's own head.
#include <algorithm>
#include <cmath>

#include "models/job/block_builder.h"

namespace plimsoll {

namespace {

DataParams masked_data(const Job& job) {
  return {job.sequence, masked_positions(job), job.vocab, job.seed};
}

struct Width {
  std::int64_t hidden, heads, ffn_hidden;
};

TensorId build_bert_embedding(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, job, micro_batch, "embedding", BlockKind::embedding);
  const TensorId word =
      block.parameter("word", {job.vocab, job.hidden}, Init::normal, kInitStddev, 0);
  const TensorId position =
      block.parameter("position", {job.sequence, job.hidden}, Init::normal, kInitStddev, {});
  const TensorId ids = block.tensor("tokens", {block.tokens()}, DType::i32);
  block.op(OpKind::load_masked_tokens, {}, {ids}, masked_data(job));
  TensorId x = block.tensor("words", {block.tokens(), job.hidden});
  block.op(OpKind::embedding, {ids, word}, {x}, VocabularyParams{.vocabulary = job.vocab});
  const TensorId placed = block.tensor("placed", block.shape(x));
  block.op(OpKind::position_add, {x, position}, {placed});
  x = placed;
  if (job.token_types > 0) {
    const TensorId table =
        block.parameter("token_type", {job.token_types, job.hidden}, Init::normal, kInitStddev, {});
    const TensorId typed = block.tensor("typed", block.shape(x));
    block.op(OpKind::token_type_add, {x, table}, {typed}, DataParams{job.sequence});
    x = typed;
  }
  block.output(block.dropout("output", block.layer_norm("norm", x, epsilon_of(job))));
  return word;
}

void build_layers(Graph& graph, const Job& job, std::int64_t micro_batch, const std::string& name,
                  std::int64_t count, const Width& width) {
  BlockBuilder block(graph, job, micro_batch, name, BlockKind::layer, count);
  const TensorId x = block.input(width.hidden);
  const TensorId attended = block.attention(
      x, {.heads = width.heads, .kv_heads = width.heads, .hidden = width.hidden, .causal = false});
  const TensorId middle = block.layer_norm(
      "norm1", block.add("middle", x, block.dropout("attended", attended)), epsilon_of(job));
  const TensorId fc1 = block.linear(
      "fc1", middle, {.out = {width.ffn_hidden}, .split_dim = 1, .target = AdapterTarget::up});
  const TensorId fc2 =
      block.linear("fc2", block.gelu("gelu", fc1),
                   {.out = {width.hidden}, .split_dim = 0, .target = AdapterTarget::down});
  block.output(block.layer_norm("norm2", block.add("sum", middle, block.dropout("fed", fc2)),
                                epsilon_of(job)));
}

void build_join(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, job, micro_batch, "join", BlockKind::join);
  const TensorId x = block.input(job.hidden);
  block.output(block.linear("narrow", x, {.out = {job.branch->hidden}}));
}

void build_bert_head(Graph& graph, const Job& job, std::int64_t micro_batch, TensorId word,
                     TensorId scalars) {
  BlockBuilder block(graph, job, micro_batch, "head", BlockKind::head);
  const std::int64_t hidden = job.branch ? job.branch->hidden : job.hidden;
  const std::int64_t predicted = masked_positions(job);
  const TensorId x = block.input(hidden);
  const TensorId positions = block.tensor("positions", {micro_batch * predicted}, DType::i32);
  const TensorId targets = block.tensor("targets", {micro_batch * predicted}, DType::i32);
  block.op(OpKind::load_masked_positions, {}, {positions}, masked_data(job));
  block.op(OpKind::load_masked_targets, {}, {targets}, masked_data(job));
  TensorId y = block.tensor("predicted", {micro_batch * predicted, hidden});
  block.op(OpKind::gather_rows, {x, positions}, {y});
  if (job.pooler) y = block.gelu("gelu", block.linear("pooler", y, {.out = {hidden}}));
  std::optional<TensorId> tied;
  if (job.tied_embeddings) tied = word;
  block.loss(block.logits(y, tied), targets, scalars, job.global_batch * predicted);
}

}  // namespace

std::int64_t masked_positions(const Job& job) {
  return std::max<std::int64_t>(1, std::llround(job.mask_probability * double(job.sequence)));
}

Graph build_bert(const Job& job, std::int64_t micro_batch) {
  auto [graph, scalars] = empty_graph(job);
  const TensorId word = build_bert_embedding(graph, job, micro_batch);
  build_layers(graph, job, micro_batch, "layer", job.layers,
               {job.hidden, job.heads, job.ffn_hidden});
  if (job.branch) {
    build_join(graph, job, micro_batch);
    build_layers(graph, job, micro_batch, "branch_layer", job.branch->layers,
                 {job.branch->hidden, job.branch->heads, job.branch->ffn_hidden});
  }
  build_bert_head(graph, job, micro_batch, word, scalars);
  return std::move(graph);
}

}  // namespace plimsoll
