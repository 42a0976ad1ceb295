// LLaMA (Touvron et al. 2023, arXiv 2302.13971 section 2.2 and 2307.09288 section 2.2): x =
// wte[tokens]; per layer x += proj(attention(rms(x))) with rotary position embeddings and grouped
// queries, x += down(silu(gate(rms(x))) * up(rms(x))); head: rms, logits with a table of its own or
// the embedding's. No biases. Descendants differ in what the fields of a Job say:
// biases of query, key and value: Qwen2 (arXiv 2407.10671, section 2.2.1); of all linear layers:
//   StarCoder2 (arXiv 2402.19173, section 6.1)
// norms of queries and keys, heads of a size of their own: Qwen3 (arXiv 2505.09388, section 2)
// layer norms, squared ReLU: Nemotron-4 (arXiv 2402.16819, section 2)
// GeGLU: Gemma (arXiv 2403.08295, section 2); norms around each branch: Gemma 2 (arXiv 2408.00118,
//   section 2.2); norms behind each branch: OLMo 2 (arXiv 2501.00656, section 3.2)
// attention and MLP in parallel, a part of each head turned: GPT-NeoX (arXiv 2204.06745, section
//   2.1); in parallel behind one norm: Falcon (arXiv 2311.16867, section 4)
// a mixture of experts in place of the MLP: experts.cpp; an MLP beside the experts of a layer:
//   Snowflake Arctic (Snowflake-Labs modeling_arctic.py, ArcticDecoderLayer)
// a window in some layers: Gemma 2 (section 2), with other angles there: Gemma 3 (arXiv 2503.19786,
//   section 2)
// sinks: GPT-OSS (arXiv 2508.10925, section 2.2)
// norms of queries and keys without weights, queries that grow in layers that turn nothing: Llama 4
// ALiBi (arXiv 2108.12409) and a norm behind the embedding: BLOOM (arXiv 2211.05100, section 3.2)
// latent attention: DeepSeek-V2 (arXiv 2405.04434, section 2.1)
//
// MTP modules: DeepSeek-V3 (arXiv 2412.19437, section 2.2), in Megatron-LM's form
// (core/transformer/multi_token_prediction.py). A module hands on what it got and its own states,
// side by side for each token, so that blocks stay a chain. The first one has the norm behind the
// layers. The head then has one product, and the loss counts each depth by its weight.
#include <fmt/format.h>

#include <cmath>
#include <span>

#include "base/error.h"
#include "models/job/block_builder.h"
#include "models/job/layer_forms.h"

namespace plimsoll {

namespace {

TensorId norm(BlockBuilder& block, const Job& job, const std::string& name, TensorId x) {
  return job.norm == NormKind::rms_norm ? block.rms_norm(name, x, epsilon_of(job))
                                        : block.layer_norm(name, x, epsilon_of(job), job.norm_bias);
}

TensorId build_llama_embedding(Graph& graph, const Job& job, std::int64_t micro_batch) {
  BlockBuilder block(graph, job, micro_batch, "embedding", BlockKind::embedding);
  const TensorId word =
      block.parameter("word", {job.vocab, job.hidden}, Init::normal, kInitStddev, 0);
  const TensorId ids = block.tensor("tokens", {block.tokens()}, DType::i32);
  block.op(OpKind::load_tokens, {}, {ids}, DataParams{job.sequence});
  const bool last = job.dropout == 0 && !job.embedding_norm && !job.learned_positions &&
                    job.factors.embedding == 1;
  TensorId x = block.tensor(last ? "output" : "words", {block.tokens(), job.hidden});
  block.op(OpKind::embedding, {ids, word}, {x}, VocabularyParams{.vocabulary = job.vocab});
  x = block.multiply("scaled", x, job.factors.embedding);
  if (job.learned_positions) {
    const TensorId table =
        block.parameter("position", {job.sequence, job.hidden}, Init::normal, kInitStddev, {});
    const TensorId placed = block.tensor("placed", block.shape(x));
    block.op(OpKind::position_add, {x, table}, {placed});
    x = placed;
  }
  if (job.embedding_norm) x = norm(block, job, "norm", x);
  block.output(block.dropout("output", x));
  return word;
}

/// Attention reads `read` of x, and gives `branch`.
struct Attended {
  TensorId read, branch;
};

/// Returns the branch as it is added to the residual stream.
TensorId branch(BlockBuilder& block, const Job& job, const std::string& norm_name, TensorId y) {
  if (job.norm_place != NormPlace::before) y = norm(block, job, norm_name, y);
  return block.multiply(norm_name + ".scaled", y, job.factors.branch);
}

/// Returns how queries of a layer grow. Where no position of a sequence reaches a span, they do
/// not.
QueryGrowth growth_in(const Job& job, const LayerForm& form) {
  const QueryGrowth& growth = job.rotary.growth;
  bool all_turned = true;
  for (std::int64_t layer = 0; layer < job.layers; ++layer)
    all_turned = all_turned && has_rotary(job, layer);
  const bool grows = form.turned == all_turned && job.sequence - 1 + growth.ahead >= growth.span;
  return grows ? growth : QueryGrowth();
}

Attended attend(BlockBuilder& block, const Job& job, const LayerForm& form, TensorId x,
                double out_stddev) {
  const TensorId read = job.norm_place == NormPlace::after ? x : norm(block, job, "norm1", x);
  BlockBuilder::Attention kind = {.heads = job.heads,
                                  .kv_heads = job.kv_heads,
                                  .hidden = job.hidden,
                                  .head_width = head_width(job),
                                  .qkv_bias = job.qkv_bias,
                                  .out_bias = job.out_bias,
                                  .rotary = form.turned,
                                  .qk_norm_across_heads = job.qk_norm_across_heads,
                                  .qk_norm_weight = !job.qk_l2_norm,
                                  .sinks = job.sinks,
                                  .alibi = job.alibi,
                                  .alibi_scaled = job.alibi_scaled,
                                  .gate = job.attention_gate,
                                  .out_stddev = out_stddev,
                                  .rotary_base = job.rotary.base,
                                  .rotary_scale = job.rotary.scale,
                                  .growth = growth_in(job, form),
                                  .window = form.windowed ? job.window : 0,
                                  .chunks = job.window_chunks,
                                  .score_cap = job.score_cap,
                                  .score_factor = job.factors.scores,
                                  .latent_epsilon = epsilon_of(job)};
  if (form.windowed && job.rotary.window_base > 0) {
    kind.rotary_base = job.rotary.window_base;
    kind.rotary_scale = {};
  }
  if (job.qk_norm || (job.qk_l2_norm && form.turned)) kind.qk_norm_epsilon = epsilon_of(job);
  const TensorId attended = branch(block, job, "attention_norm", block.attention(read, kind));
  return {read, block.dropout("attended", attended)};
}

/// Adds an MLP beside the experts of a layer, which reads `middle`. Returns their sum.
TensorId add_beside(BlockBuilder& block, const Job& job, TensorId middle, double out_stddev) {
  const TensorId read =
      job.norm_place == NormPlace::after ? middle : norm(block, job, "dense.norm", middle);
  const TensorId down =
      block.linear("dense.down", active_mlp(block, read, "dense.", job.experts->dense_ffn_hidden),
                   {.out = {job.hidden},
                    .stddev = out_stddev,
                    .split_dim = 0,
                    .bias = false,
                    .target = AdapterTarget::down});
  const TensorId fed = branch(block, job, "dense.norm_behind", down);
  return block.add("beside", middle, block.dropout("dense.fed", fed));
}

/// Adds a layer that reads x. Returns the sum of its last branch.
TensorId build_layer(BlockBuilder& block, const Job& job, const LayerForm& form, TensorId x) {
  const double out_stddev = kInitStddev / std::sqrt(2.0 * double(job.layers));
  const Attended attention = attend(block, job, form, x, out_stddev);
  const TensorId middle = block.add("middle", x, attention.branch);
  TensorId read = job.mlp_input == MlpInput::own_norm ? x : middle;
  if (job.mlp_input == MlpInput::shared_norm) {
    read = attention.read;
  } else if (job.norm_place != NormPlace::after) {
    read = norm(block, job, "norm2", read);
  }
  const auto mlp = [&] {
    return block.linear("down", active_mlp(block, read, "", job.ffn_hidden),
                        {.out = {job.hidden},
                         .stddev = out_stddev,
                         .split_dim = 0,
                         .bias = job.mlp_bias,
                         .target = AdapterTarget::down});
  };
  const bool beside = form.experts && job.experts->dense_ffn_hidden > 0;
  const TensorId sum = beside ? add_beside(block, job, middle, out_stddev) : middle;
  const TensorId down = form.experts ? mixture_of_experts(block, read, out_stddev) : mlp();
  const TensorId fed = branch(block, job, "mlp_norm", down);
  return block.add("output", sum, block.dropout("fed", fed));
}

/// Layers of one form, among `forms` of the job.
void build_layers(Graph& graph, const Job& job, std::int64_t micro_batch, const FormLayers& layers,
                  std::span<const FormLayers> forms) {
  BlockBuilder block(graph, job, micro_batch, block_name(layers.form, forms), BlockKind::layer,
                     std::int64_t(layers.layers.size()));
  if (alternate(forms)) block.definition().layers = layers.layers;
  block.output(build_layer(block, job, layers.form, block.input(job.hidden)));
}

/// Module `depth`, counted from 1, is like the last layer.
void build_module(Graph& graph, const Job& job, std::int64_t micro_batch, std::int64_t depth,
                  TensorId word, bool alternates) {
  BlockBuilder block(graph, job, micro_batch, fmt::format("mtp{}", depth), BlockKind::layer);
  const std::int64_t n = block.tokens(), h = job.hidden;
  if (alternates) block.definition().layers = {job.layers + depth - 1};
  const TensorId states = block.input(h, depth);
  TensorId before = states, last = states;
  if (depth == 1) {
    last = norm(block, job, "norm", states);
  } else {
    before = block.tensor("before", {(depth - 1) * n, h});
    last = block.tensor("last", {n, h});
    block.op(OpKind::part_tokens, {states}, {before, last});
  }
  const TensorId table = block.parameter("word", {job.vocab, h}, Init::normal, kInitStddev, 0);
  graph.at(table).tied_to = word;
  const TensorId ids = block.tensor("tokens", {n}, DType::i32),
                 words = block.tensor("words", {n, h});
  block.op(OpKind::load_targets, {}, {ids}, DataParams{.sequence = job.sequence, .ahead = depth});
  block.op(OpKind::embedding, {ids, table}, {words}, VocabularyParams{.vocabulary = job.vocab});
  const TensorId scaled = block.multiply("scaled", words, job.factors.embedding);
  const TensorId next = norm(block, job, "embedding_norm", block.dropout("embedded", scaled)),
                 hidden = norm(block, job, "hidden_norm", last),
                 joined = block.tensor("joined", {n, 2 * h});
  block.op(OpKind::join_tokens, {next, hidden}, {joined});
  const TensorId x = block.linear("joint", joined, {.out = {h}, .bias = false});
  const TensorId y = build_layer(block, job, form_of_layer(job, job.layers - 1), x);
  const auto join = [&](const char* name, TensorId a, TensorId b, Shape shape) {
    const TensorId whole = block.tensor(name, std::move(shape));
    block.op(OpKind::join_tokens, {a, b}, {whole});
    return whole;
  };
  const TensorId own = norm(block, job, "final_norm", y);
  if (depth == 1) return block.output(join("states", last, own, {2 * n, h}));
  const TensorId pair = join("pair", last, own, {n, 2 * h});
  block.output(join("states", before, pair, {(depth + 1) * n, h}));
}

void build_llama_head(Graph& graph, const Job& job, std::int64_t micro_batch, TensorId word,
                      TensorId scalars) {
  BlockBuilder block(graph, job, micro_batch, "head", BlockKind::head);
  const std::int64_t depths = 1 + (job.mtp ? job.mtp->depths : 0);
  const TensorId x = block.input(job.hidden, depths);
  const TensorId targets = block.tensor("targets", {depths * block.tokens()}, DType::i32);
  block.op(OpKind::load_targets, {}, {targets},
           DataParams{.sequence = job.sequence, .depths = depths});
  const TensorId y = job.mtp ? x : norm(block, job, "norm", x);
  std::optional<TensorId> tied;
  if (job.tied_embeddings) tied = word;
  block.loss(block.logits(y, tied), targets, scalars, job.global_batch * job.sequence);
}

}  // namespace

OpParams params_of(const Job& job, OpKind activation) {
  if (activation == OpKind::squared_relu) return {};
  ActivationParams params = job.activation_params;
  if (activation != OpKind::swiglu) return ActivationParams{.exact = params.exact};
  params.exact = false;
  return params;
}

TensorId active_mlp(BlockBuilder& block, TensorId x, const std::string& prefix,
                    std::int64_t ffn_hidden, std::optional<TensorId> weights) {
  const Job& job = block.job();
  const auto apply = [&](OpKind kind, const char* name, TensorId from) {
    const TensorId y = block.tensor(prefix + name, {block.tokens(), ffn_hidden});
    std::vector<TensorId> inputs = {from};
    if (weights) inputs.push_back(*weights);
    block.op(kind, std::move(inputs), {y}, params_of(job, kind));
    return y;
  };
  const auto product = [&](const char* name, Shape out, AdapterTarget target) {
    BlockBuilder::Linear layer = {.out = std::move(out), .bias = job.mlp_bias, .target = target};
    layer.split_dim = std::int64_t(layer.out.size());
    return block.linear(prefix + name, x, layer);
  };
  const auto up = [&] { return product("up", {ffn_hidden}, AdapterTarget::up); };
  const auto gate_up = [&] {
    const bool apart = block.adapts(AdapterTarget::gate) || block.adapts(AdapterTarget::up);
    if (!apart) return product("gate_up", {2, ffn_hidden}, AdapterTarget::gate_up);
    const TensorId gate = product("gate_projection", {ffn_hidden}, AdapterTarget::gate);
    const TensorId joined = block.tensor(prefix + "gate_and_up", {block.tokens(), 2, ffn_hidden});
    block.op(OpKind::join_tokens, {gate, up()}, {joined});
    return joined;
  };
  switch (job.activation) {
    case Activation::swiglu:
      return apply(OpKind::swiglu, "swiglu", gate_up());
    case Activation::geglu:
      return apply(OpKind::geglu, "geglu", gate_up());
    case Activation::squared_relu:
      return apply(OpKind::squared_relu, "squared_relu", up());
    case Activation::gelu:
      return apply(OpKind::gelu, "gelu", up());
  }
  INVARIANT(false, "an MLP has an activation");
}

Graph build_llama(const Job& job, std::int64_t micro_batch) {
  auto [graph, scalars] = empty_graph(job);
  const TensorId word = build_llama_embedding(graph, job, micro_batch);
  const std::vector<FormLayers> forms = layer_forms(job);
  for (const FormLayers& layers : forms) build_layers(graph, job, micro_batch, layers, forms);
  for (std::int64_t depth = 1; job.mtp && depth <= job.mtp->depths; ++depth)
    build_module(graph, job, micro_batch, depth, word, alternate(forms));
  build_llama_head(graph, job, micro_batch, word, scalars);
  return std::move(graph);
}

}  // namespace plimsoll
