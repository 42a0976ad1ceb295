// A mixture of experts (Shazeer et al. 2017, arXiv 1701.06538) as in Mixtral (arXiv 2401.04088,
// section 2.1): y = sum over the chosen experts i of w_i(x) down_i(silu(gate_i(x)) * up_i(x)), with
// the weights of a linear router. Descendants differ in what Experts says:
// shared experts beside, one MLP with their widths together: DeepSeekMoE (arXiv 2401.06066, section
//   3.2); dense layers first: section 4.1 there
// sigmoid scores, groups of experts, a factor of the weights: DeepSeek-V3 (arXiv 2412.19437,
// section
//   2.1.2); groups by their best expert: DeepSeek-V2 (arXiv 2405.04434, section 2.2.2)
// a bias for choosing, which steps move against the load: Wang et al. 2024 (arXiv 2408.15664)
// weights that are not normalised: Qwen2-57B-A14B (arXiv 2407.10671, section 2.2.2)
// one auxiliary loss over all layers: each adds its choices to a sum of the micro-batch, which
//   backward of every layer reads, when forward of all is over (transformers, models/mixtral)
// biases of experts and router: GPT-OSS (arXiv 2508.10925, section 2.1)
// a sigmoid gate of the shared MLP: Qwen2-57B-A14B (transformers, models/qwen2_moe)
// weights that multiply what experts read: Llama 4 (transformers, models/llama4)
// experts that work in a narrower space, between two products: LatentMoE of NVIDIA Nemotron 3
//   (Megatron-LM megatron/core/transformer/moe/moe_layer.py, fc1_latent_proj and fc2_latent_proj).
//   The router and the shared MLP read tokens as they are
// capacity: GShard (arXiv 2006.16668, section 2.2), by sequence here, so that it does not depend on
//   micro-batches or on the ranks of data parallelism which choices are dropped
//
// The weight of a choice multiplies what the expert's last layer reads. Its sum is the same, since
// that layer is linear, and backward need not keep what the experts gave (Megatron-LM
// megatron/core/transformer/moe/experts.py). A bias of the last layer is multiplied as it is added.
// The gate of the shared MLP is likewise a weight of what its last layer reads: that of a router
// with one expert.
#include <algorithm>
#include <utility>

#include "models/job/block_builder.h"

namespace plimsoll {

namespace {

/// The choices of n tokens, and where they are computed.
struct Choices {
  TensorId weights, rows, ends;  ///< [n,k], [n,k], [e]
};

/// Returns the layers with experts, those of MTP modules among them.
std::int64_t expert_layers(const Job& job) {
  const bool in_modules = job.mtp && has_experts(job, job.layers - 1);
  std::int64_t count = in_modules ? job.mtp->depths : 0;
  for (std::int64_t layer = 0; layer < job.layers; ++layer) count += has_experts(job, layer);
  return count;
}

/// `most_rows` is the number of rows at all experts.
Choices choose(BlockBuilder& block, TensorId x, std::int64_t capacity, std::int64_t most_rows) {
  const Job& job = block.job();
  const Experts& experts = *job.experts;
  const std::int64_t n = block.tokens(), s = job.sequence;
  const TensorId logits =
      block.linear("router", x, {.out = {experts.count}, .bias = experts.router_bias});
  TensorId weights = block.tensor("weights", {n, experts.chosen});
  const TensorId chosen = block.tensor("chosen", {n, experts.chosen}, DType::i32);
  const bool sigmoid = experts.score == RouterScore::sigmoid;
  std::vector<TensorId> scored = {logits};
  if (experts.selection_bias > 0) scored.push_back(block.state("bias", {experts.count}));
  block.op(OpKind::route, std::move(scored), {weights, chosen},
           RouteParams{.sigmoid = sigmoid,
                       .normalized = experts.normalized,
                       .scale = experts.scale,
                       .groups = experts.groups,
                       .top_groups = experts.top_groups,
                       .group_best = experts.group_best});
  if (experts.selection_bias > 0)
    block.op(OpKind::count_choices, {chosen}, {block.state("load", {experts.count})});
  const bool has_losses = experts.balance_loss > 0 || experts.z_loss > 0;
  TensorId kept = chosen, counts;
  if (has_losses || capacity > 0) {
    counts = block.tensor("counts", {block.micro_batch(), experts.count});
    std::vector<TensorId> outputs = {counts};
    if (capacity > 0) {
      kept = block.tensor("kept", {n, experts.chosen}, DType::i32);
      outputs.push_back(kept);
    }
    block.op(OpKind::limit_choices, {chosen}, outputs,
             LimitParams{.sequence = s, .capacity = capacity});
  }
  const TensorId rows = block.tensor("rows", {n, experts.chosen}, DType::i32),
                 ends = block.tensor("ends", {experts.count}, DType::i32);
  block.op(OpKind::place_choices, {kept}, {rows, ends},
           PlaceParams{.rows = most_rows, .drops = experts.drop_overflow});
  if (has_losses) {
    const double sequences = double(job.global_batch);
    const double losses = sequences / double(experts.balance_sequences);
    BalanceParams balance{.sequence = s,
                          .sequences = experts.balance_sequences,
                          .sigmoid = sigmoid,
                          .balance_weight = experts.balance_loss / losses,
                          .z_weight = experts.z_loss / (sequences * double(s))};
    if (experts.balance_layers) {  // those of a micro-batch are as one sequence
      const TensorId of_layers = block.state("layer_choices", {1, experts.count});
      block.op(OpKind::bias_gradient, {counts}, {of_layers});
      counts = of_layers;
      balance.sequence = expert_layers(job) * n;
      balance.sequences = 1;
    }
    const TensorId balanced = block.tensor("balanced", {n, experts.chosen});
    block.op(OpKind::balance_experts, {weights, logits, counts}, {balanced}, balance);
    weights = balanced;
  }
  return {weights, rows, ends};
}

/// Adds the bias of each row's expert, times the weight of the row.
TensorId add_bias(BlockBuilder& block, const std::string& layer, TensorId x, Shape bias,
                  std::optional<std::int64_t> split_dim, TensorId ends,
                  std::optional<TensorId> weights) {
  const TensorId y = block.tensor(layer + ".biased", block.shape(x));
  std::vector<TensorId> inputs = {
      x, block.parameter(layer + ".bias", std::move(bias), Init::zeros, 0, split_dim), ends};
  if (weights) inputs.push_back(*weights);
  block.op(OpKind::grouped_bias_add, std::move(inputs), {y}, GroupedBiasParams{});
  return y;
}

TensorId shared_mlp(BlockBuilder& block, TensorId x, double out_stddev) {
  const Experts& experts = *block.job().experts;
  std::optional<TensorId> weights;
  if (experts.shared_gate) {
    const TensorId logits = block.linear("shared.gate", x, {.out = {1}, .bias = false});
    weights = block.tensor("shared.weights", {block.tokens(), 1});
    const TensorId chosen = block.tensor("shared.chosen", {block.tokens(), 1}, DType::i32);
    block.op(OpKind::route, {logits}, {*weights, chosen}, RouteParams{.sigmoid = true});
  }
  return block.linear("shared.down",
                      active_mlp(block, x, "shared.", experts.shared_ffn_hidden, weights),
                      {.out = {block.job().hidden},
                       .stddev = out_stddev,
                       .split_dim = 0,
                       .bias = false,
                       .target = AdapterTarget::down});
}

/// Adds the products of each row's expert: x [m,k] by a weight [e,k,out...], which is split along
/// `split_dim`, and its adapter.
class ExpertLayer {
 public:
  ExpertLayer(BlockBuilder& block, TensorId ends) : block_(block), ends_(ends) {}

  TensorId product(const std::string& name, TensorId x, TensorId weight) {
    Shape out = block_.shape(weight);
    out.erase(out.begin());
    out[0] = block_.shape(x)[0];
    const TensorId y = block_.tensor(name, std::move(out));
    block_.op(OpKind::grouped_matmul, {x, weight, ends_}, {y});
    return y;
  }

  /// Returns x A B of adapters with B [e,rank,out...]. A is split where the layer is split by rows.
  TensorId delta(const std::string& name, TensorId x, Shape out,
                 std::optional<std::int64_t> split_dim) {
    const std::int64_t experts = block_.job().experts->count, rank = block_.job().adapters->rank;
    const bool by_rows = split_dim == 1;
    const TensorId a = block_.adapter(name + ".adapter_a", {experts, block_.shape(x)[1], rank},
                                      Init::normal, by_rows ? split_dim : std::nullopt);
    out.insert(out.begin(), {experts, rank});
    const TensorId b = block_.adapter(name + ".adapter_b", std::move(out), Init::zeros,
                                      by_rows ? std::nullopt : split_dim);
    return product(name + ".delta", product(name + ".narrow", x, a), b);
  }

  TensorId adapted(const std::string& name, TensorId y, TensorId delta) {
    const double scale = block_.job().adapters->scale;
    return block_.add(name + ".adapted", y, block_.multiply(name + ".scaled", delta, scale));
  }

 private:
  BlockBuilder& block_;
  const TensorId ends_;
};

/// Adds gate and up of rows x [m,h], with their adapters: [m,2,f].
TensorId gates_of(BlockBuilder& block, ExpertLayer layer, TensorId x) {
  const std::int64_t h = block.shape(x)[1], f = block.job().experts->ffn_hidden;
  const TensorId weight =
      block.parameter("experts.gate_up.weight", {block.job().experts->count, h, 2, f}, Init::normal,
                      kInitStddev, 3);
  const TensorId y = layer.product("experts.gate_up.y", x, weight);
  if (block.adapts(AdapterTarget::gate_up))
    return layer.adapted("experts.gate_up", y, layer.delta("experts.gate_up", x, {2, f}, 3));
  if (!block.adapts(AdapterTarget::gate)) return y;
  const TensorId gate = layer.delta("experts.gate", x, {f}, 2),
                 up = layer.delta("experts.up", x, {f}, 2),
                 joined = block.tensor("experts.gate_and_up", block.shape(y));
  block.op(OpKind::join_tokens, {gate, up}, {joined});
  return layer.adapted("experts.gate_up", y, joined);
}

}  // namespace

TensorId mixture_of_experts(BlockBuilder& block, TensorId x, double out_stddev) {
  const Job& job = block.job();
  const Experts& experts = *job.experts;
  const bool narrow = experts.latent_hidden > 0;
  const std::int64_t n = block.tokens(), h = narrow ? experts.latent_hidden : job.hidden,
                     f = experts.ffn_hidden;
  const std::int64_t capacity = expert_capacity(job), all = n * experts.chosen;
  const std::int64_t m =
      capacity > 0 ? std::min(all, experts.count * block.micro_batch() * capacity) : all;
  const Choices choices = choose(block, x, capacity, m);
  TensorId given = x;
  if (narrow) given = block.linear("experts.latent_down", x, {.out = {h}, .bias = experts.bias});
  const TensorId routed = block.tensor("routed", {m, h}),
                 row_weights = block.tensor("row_weights", {m});
  block.op(OpKind::dispatch_rows, {given, choices.rows, choices.weights}, {routed, row_weights});
  TensorId read = routed;
  if (experts.scaled_input) {
    read = block.tensor("experts.scaled", {m, h});
    block.op(OpKind::scale_rows, {routed, row_weights}, {read});
  }
  std::optional<TensorId> of_output;
  if (!experts.scaled_input) of_output = row_weights;

  ExpertLayer layer(block, choices.ends);
  TensorId gates = gates_of(block, layer, read);
  const TensorId product = block.tensor("experts.product", {m, f});
  if (experts.bias) {
    gates = add_bias(block, "experts.gate_up", gates, {experts.count, 2, f}, 2, choices.ends, {});
  }
  const OpKind activation = job.activation == Activation::geglu ? OpKind::geglu : OpKind::swiglu;
  std::vector<TensorId> activated = {gates};
  if (of_output) activated.push_back(*of_output);
  block.op(activation, std::move(activated), {product}, params_of(job, activation));
  const TensorId down =
      block.parameter("experts.down.weight", {experts.count, f, h}, Init::normal, out_stddev, 1);
  TensorId computed = layer.product("experts.down.y", product, down);
  if (block.adapts(AdapterTarget::down))
    computed =
        layer.adapted("experts.down", computed, layer.delta("experts.down", product, {h}, 1));
  if (experts.bias) {
    computed =
        add_bias(block, "experts.down", computed, {experts.count, h}, {}, choices.ends, of_output);
  }
  TensorId mixed = block.tensor("experts.y", {n, h});
  block.op(OpKind::combine_rows, {computed, choices.rows}, {mixed});
  if (narrow) {
    mixed = block.linear("experts.latent_up", mixed,
                         {.out = {job.hidden}, .stddev = out_stddev, .bias = experts.bias});
  }
  if (experts.shared_ffn_hidden == 0) return mixed;
  return block.add("mixed", mixed, shared_mlp(block, x, out_stddev));
}

}  // namespace plimsoll
