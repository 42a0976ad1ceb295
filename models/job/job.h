// A Job is a transformer and its training step, as a user describes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"
#include "graph/tensor.h"
#include "models/kinds/set_of.h"

namespace plimsoll {

enum class Family : std::uint8_t {
  gpt,    ///< decoder with learned positions, pre layer norm, GELU
  llama,  ///< decoder with rotary embeddings, whose layers the fields below describe
  bert,   ///< encoder with learned positions, post layer norm, GELU, masked-LM loss
  ernie,  ///< bert with a narrower task branch after the shared trunk (ERNIE 3.0)
};
/// An Activation is the function that a llama layer applies between the products of its MLP.
enum class Activation : std::uint8_t {
  swiglu,        ///< silu(gate) up: three matrices
  squared_relu,  ///< max(x, 0)^2: two (Nemotron-4)
  geglu,         ///< gelu(gate) up: three (Gemma)
  gelu,          ///< two (GPT-NeoX, Falcon)
};
enum class NormKind : std::uint8_t {
  rms_norm,    ///< with a weight
  layer_norm,  ///< with a weight and a bias (Nemotron-4), or without it (DBRX)
};
/// A NormPlace says where a llama layer has its norms.
enum class NormPlace : std::uint8_t {
  before,  ///< of what attention and MLP read: two norms
  around,  ///< also of what they give, before it is added: four norms (Gemma 2, GLM-4, Grok-1)
  after,   ///< of what they give alone: two norms (OLMo 2)
};
/// An MlpInput says what the MLP of a llama layer reads.
enum class MlpInput : std::uint8_t {
  attended,     ///< the sum of the layer's input and attention
  own_norm,     ///< the layer's input, by a norm of its own: in parallel to attention (GPT-NeoX)
  shared_norm,  ///< what attention reads (Falcon-7B)
};
/// A RouterScore says how a router's logits become scores of experts.
enum class RouterScore : std::uint8_t {
  softmax,  ///< over all experts (Mixtral, Qwen3)
  sigmoid,  ///< of each (DeepSeek-V3, Llama 4)
};
enum class OptimizerKind : std::uint8_t { adamw, sgd, lamb, muon, adafactor };

/// A ParameterGroup has its own settings for the parameters that `match` names: those of a kind
/// ("weight", "bias", "norm", "embedding"), of a block ("layer"), or one by name
/// ("layer.fc1.weight").
struct ParameterGroup {
  std::string match;
  std::optional<double> weight_decay;
  std::optional<bool> clip;  ///< false: not in the gradient norm, not clipped
  std::optional<double> learning_rate_factor;
  bool operator==(const ParameterGroup&) const = default;
};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 3e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double momentum = 0.9;                    ///< sgd, muon
  std::vector<ParameterGroup> groups = {};  ///< later ones override earlier ones
  bool operator==(const Optimizer&) const = default;
};

/// A LossScale is the dynamic loss scaling of fp16 training. The defaults are those of
/// torch.amp.GradScaler; Megatron-LM's 2^32 would skip the first dozen or more steps.
struct LossScale {
  double initial = 65536, growth = 2, backoff = 0.5;
  std::int64_t growth_interval = 2000;  ///< steps in a row without overflow
  bool operator==(const LossScale&) const = default;
};

/// ERNIE has these layers after the trunk. A linear layer with bias joins them to it.
struct Branch {
  std::int64_t layers = 0, hidden = 0, heads = 0, ffn_hidden = 0;
  bool operator==(const Branch&) const = default;
};

/// The MLPs of most layers of a llama job are a mixture of experts: a router chooses some of them
/// for each token, and their outputs are summed by its weights (models/job/experts.cpp). Experts
/// are gated MLPs.
struct Experts {
  std::int64_t count = 0, chosen = 0;  ///< in a layer; of them for one token
  std::int64_t ffn_hidden = 0;         ///< of one expert
  std::int64_t shared_ffn_hidden = 0;  ///< of an MLP that every token has beside; 0: none
  bool shared_gate = false;            ///< its output is multiplied by a sigmoid (Qwen2-57B-A14B)
  /// Width of an MLP between attention and the experts' sum in the same layer, with a norm of its
  /// own (Snowflake Arctic); 0: none.
  std::int64_t dense_ffn_hidden = 0;
  /// Columns of a token where experts work, between two products beside them (LatentMoE, NVIDIA
  /// Nemotron 3); 0: hidden.
  std::int64_t latent_hidden = 0;
  std::int64_t dense_layers = 0;  ///< the first layers, which have one MLP
  /// Which of the others have experts: layer i where element i mod size is true. Empty: all.
  std::vector<bool> pattern = {};
  bool bias = false;          ///< of the experts' layers (GPT-OSS)
  bool router_bias = false;   ///< of the router
  bool scaled_input = false;  ///< weights multiply what experts read (Llama 4), not their outputs
  RouterScore score = RouterScore::softmax;
  bool normalized = true;  ///< the weights of a token are divided by their sum
  double scale = 1;        ///< and multiplied by this
  /// The experts are in `groups` of equal size, of which a token takes `top_groups` first: those
  /// with the largest sum of their `group_best` highest scores.
  std::int64_t groups = 1, top_groups = 1, group_best = 1;
  /// A sequence of s tokens has at most ceil(capacity s chosen / count) rows at an expert, and the
  /// choices behind are dropped; 0: all are computed.
  double capacity = 0;
  /// The rows of the rank that gets most, over those of even routing, where ranks share out
  /// experts: predictions are of such a step.
  double load = 1.1;
  /// Choices for whose rows a rank has no memory are dropped; else a step that has some ends the
  /// run.
  bool drop_overflow = false;
  double balance_loss = 0, z_loss = 0;  ///< factors of the router's losses; 0: none
  /// Consecutive sequences of the global batch over which one auxiliary loss is taken.
  /// Micro-batches have a multiple of them.
  std::int64_t balance_sequences = 1;
  /// One auxiliary loss is over all layers, with their choices and scores together (transformers,
  /// models/mixtral, load_balancing_loss_func).
  bool balance_layers = false;
  /// A step adds this to the selection bias of an expert, or takes it from there (Wang et al. 2024,
  /// arXiv 2408.15664); 0: there are no such biases.
  double selection_bias = 0;
  bool operator==(const Experts&) const = default;
};

/// Latent attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1): queries, and keys with
/// values, come from narrow latents. A head's query and key are nope + rope columns wide.
struct Latent {
  std::int64_t q_rank = 0;  ///< width of the queries' latent; 0: they are projected at once
  std::int64_t kv_rank = 0;
  std::int64_t nope = 0;   ///< columns of a head's query and key that are not turned
  std::int64_t rope = 0;   ///< those that are turned; all heads share a key's
  std::int64_t value = 0;  ///< columns of a head's value
  bool operator==(const Latent&) const = default;
};

/// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): modules behind the layers,
/// each of which predicts one token further. A module has a layer, and shares embedding and head.
struct MultiToken {
  std::int64_t depths = 1;   ///< modules
  double loss_weight = 0.1;  ///< of the mean of their losses
  bool operator==(const MultiToken&) const = default;
};

/// Rotary position embeddings.
struct Rotary {
  double base = 10000;
  double fraction = 1;  ///< of a head's columns, which are turned (GPT-NeoX: 0.25)
  /// The base in layers with the window, whose angles are then not scaled; 0: as the others.
  double window_base = 0;
  /// Which layers have them: layer i where element i mod size is true. Empty: all.
  std::vector<bool> pattern = {};
  RotaryScale scale = {};
  QueryGrowth growth = {};  ///< in layers without rotary embeddings, or in all if all have them
  bool operator==(const Rotary&) const = default;
};

/// Constants by which a model multiplies values. 1: it does not.
struct Factors {
  double embedding = 1;  ///< of the embedding's rows (Gemma, Granite)
  double branch = 1;     ///< of what attention and MLP add (Granite, MiniCPM)
  /// A factor of attention scores, in addition to 1 / sqrt(columns of a key) (Granite, Gemma 2).
  double scores = 1;
  double logits = 1;  ///< before their cap (Granite, Cohere)
  bool operator==(const Factors&) const = default;
};

/// The linear layers of attention and MLPs that may have an adapter. Query, key, value, gate and up
/// with an adapter are separate products; qkv and gate_up are adapted as one product (Megatron
/// Bridge), whose parts share the narrow columns. So is kv_down, the latent of keys and values with
/// the shared key (transformers, models/deepseek_v3, DeepseekV3Attention, kv_a_proj_with_mqa).
enum class AdapterTarget : std::uint8_t {
  query,
  key,
  value,
  qkv,
  out,  ///< behind attention
  gate,
  up,  ///< of an MLP without gates, too
  gate_up,
  down,
  query_down,  ///< these four are of latent attention (Latent)
  query_up,
  kv_down,
  kv_up,
};
/// Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685, section 4.1): a target gives
/// x W + scale dropout(x) A B, with A [columns, rank] and B [rank, columns], which starts as zeros.
struct Adapters {
  std::int64_t rank = 16;
  double scale = 2;  ///< alpha / rank; in rsLoRA alpha / sqrt(rank)
  double dropout = 0;
  SetOf<AdapterTarget> targets = {};
  /// Parameters that are trained as well, named as in ParameterGroup::match. All others are frozen.
  std::vector<std::string> trained = {};
  bool operator==(const Adapters&) const = default;
};

/// The memory of frozen weights of the layers' products. In 4 bits they are NormalFloat with a
/// scale for 64 elements (QLoRA, Dettmers et al. 2023, arXiv 2305.14314, sections 2 and 3), in f32
/// or, in `nf4_nested`, in 8 bits. A product reads a copy in the type of the computation.
enum class FrozenWeights : std::uint8_t { computed, nf4, nf4_nested };

/// Examples of one length, and their share of all, in proportion to those of other lengths. Longer
/// ones than the sequence are cut.
struct LengthShare {
  std::int64_t tokens = 1;
  double share = 1;
  bool operator==(const LengthShare&) const = default;
};
/// How examples fill sequences (models/job/examples.h). The tokens behind them are padding.
enum class Packing : std::uint8_t {
  packed,  ///< a sequence has the next examples, as many as fit
  padded,  ///< it has one
};

struct Job {
  std::string name;
  Family family = Family::gpt;
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn_hidden = 0, vocab = 0;
  std::int64_t sequence = 0;
  /// The lengths of examples, which see themselves alone. Empty: a sequence is one example.
  std::vector<LengthShare> lengths = {};
  Packing packing = Packing::packed;
  /// Whether sequences are ordered so that ranks compute about as many scores
  /// (models/job/examples.h).
  bool balanced = false;
  bool tied_embeddings = true;
  std::optional<double> norm_epsilon = {};  ///< absent: the family's (epsilon_of())
  ActivationParams activation_params = {};
  std::int64_t global_batch = 0;  ///< sequences per step
  /// The type in which matmuls compute. bf16 is mixed precision, with f32 masters, gradients and
  /// optimizer state.
  DType precision = DType::f32;
  /// Parameters that stay f32 beside another precision, named as in ParameterGroup::match. Ops that
  /// read them compute in f32 (AMP's black list of variables).
  std::vector<std::string> fp32_parameters = {};
  /// Parameters that are not trained, named as in ParameterGroup::match. They have the job's
  /// precision, and neither gradients nor states.
  std::vector<std::string> frozen = {};
  std::optional<Adapters> adapters = {};
  FrozenWeights frozen_weights = FrozenWeights::computed;

  // The fields from here to mlp_input are those of family llama.
  std::int64_t head_size = 0;  ///< columns of a head; 0: hidden / heads. Every family is asked by
                               ///< head_width() below
  bool qkv_bias = false;       ///< biases of query, key and value (Qwen2)
  bool out_bias = false;       ///< of the projection behind attention
  bool mlp_bias = false;       ///< of the MLP's layers
  /// RMS norms of each head's query and key, with one weight for all heads (Qwen3).
  bool qk_norm = false;
  bool qk_norm_across_heads = false;  ///< qk_norm over all heads at once, with as wide a weight
  /// Each head's query and key is normed without a weight, in layers that turn them.
  bool qk_l2_norm = false;
  bool sinks = false;  ///< a learned logit of each head in the softmax's sum (GPT-OSS)
  /// Scores have a linear bias by distance, and nothing is turned (ALiBi, arXiv 2108.12409).
  bool alibi = false;
  bool alibi_scaled = false;   ///< divided by the root of a head's columns, as scores are (Falcon)
  std::int64_t window = 0;     ///< keys that a query sees, its own among them; 0: all before it
  bool window_chunks = false;  ///< tokens see their chunk of `window` tokens (Llama 4)
  /// Which layers have the window: layer i where element i mod size is true. Empty: all of them.
  std::vector<bool> window_pattern = {};
  double score_cap = 0;  ///< soft cap of attention scores (Gemma 2); 0: none
  double logit_cap = 0;  ///< soft cap of logits
  std::optional<Latent> latent = {};
  bool head_bias = false;  ///< of the logits' layer
  Rotary rotary = {};
  Factors factors = {};
  bool learned_positions = false;  ///< a table of positions, and nothing is turned
  /// The output of attention is multiplied by a sigmoid of one more product, as wide (Qwen3-Next).
  bool attention_gate = false;
  Activation activation = Activation::swiglu;
  NormKind norm = NormKind::rms_norm;
  bool norm_bias = true;        ///< of layer norms
  bool embedding_norm = false;  ///< behind the embedding (BLOOM)
  NormPlace norm_place = NormPlace::before;
  MlpInput mlp_input = MlpInput::attended;
  std::optional<Experts> experts;
  std::optional<MultiToken> mtp = {};

  std::int64_t token_types = 0;  ///< bert, ernie: rows of the token type table
  /// bert: a dense layer of hidden x hidden before the logits. It is as large as BERT's pooler,
  /// which only next-sentence prediction reads.
  bool pooler = false;
  double mask_probability = 0.15;       ///< bert, ernie: share of positions that the loss counts
  std::optional<Branch> branch;         ///< ernie
  std::optional<LossScale> loss_scale;  ///< always set for fp16; else only where a file asks for it
  Optimizer optimizer;
  double clip_norm = 1.0;  ///< 0 = no clipping
  double dropout = 0;
  std::int64_t seed = 0;
  bool operator==(const Job&) const = default;
};

/// Reads a file, or a preset by its name.
Job read_job(const std::filesystem::path& path);
Job parse_job(std::string_view text, const std::string& file);
std::string job_text(const Job& job);  ///< canonical JSON text, ends with a newline

/// Sets weight_decay, clip and rate of the parameters that the optimizer's groups match.
void apply_parameter_groups(Graph& graph, const Job& job);
/// Returns, by tensor of the Graph, whether it is a parameter that a match of the list names, or is
/// tied to such a parameter. The Graph may be before or after select_kernels.
std::vector<bool> matched_parameters(const Graph& graph, const std::vector<std::string>& matches);
/// Returns whether parameters are frozen.
bool has_frozen(const Job& job);
/// Returns the possible matches of this graph where `match` matches no parameter, else nothing.
std::optional<std::string> unmatched_group(const Graph& graph, std::string_view match);

/// Checks the rules inside the file: sizes within the limits of models/presets/schemas/job.json,
/// heads divide hidden unless they have a size of their own, kv_heads divide heads, and which
/// fields a family has. Throws InputError at `file`.
void check_job(const Job& job, const std::string& file);

/// Returns the forward pass of one micro-batch of `micro_batch` sequences, op by op, with abstract
/// ops (linear, attention). The blocks are embedding x 1, layer x L and head x 1. With a branch
/// they are embedding, layer x L, join, branch_layer x M and head. With experts, the layers that
/// have them are block expert_layer, behind the dense ones. MTP modules are blocks mtp1, mtp2 and
/// so on, of kind layer, each once before the head. gpt.cpp, llama.cpp and bert.cpp say what each
/// family computes.
Graph build_forward(const Job& job, std::int64_t micro_batch);

/// Returns the columns of an attention head's query and key.
std::int64_t head_width(const Job& job);
/// Returns the columns of its value.
std::int64_t value_width(const Job& job);
/// Returns the epsilon of the job's norms.
double epsilon_of(const Job& job);
/// Returns whether a layer has the window.
bool has_window(const Job& job, std::int64_t layer);
/// Returns whether a layer turns queries and keys.
bool has_rotary(const Job& job, std::int64_t layer);
/// Returns whether a layer has experts.
bool has_experts(const Job& job, std::int64_t layer);
/// Returns how many of them rotary embeddings turn (family llama).
std::int64_t rotary_width(const Job& job);

/// Returns the parameters that compute one token: of each layer's experts, those that are chosen.
std::int64_t active_parameter_count(const Job& job);

/// Returns the parameters of MTP modules, which share tables with the rest of the model.
std::int64_t mtp_parameter_count(const Job& job);

/// Returns the rows that a sequence may have at an expert, or 0 where all choices are computed.
std::int64_t expert_capacity(const Job& job);

/// Returns the layers of trunk and branch, and the MTP modules, together. Pipeline stages and layer
/// lists count them.
std::int64_t total_layers(const Job& job);
/// Returns how many of them are spread over the stages. MTP modules come on top, on the last one.
std::int64_t dealt_layers(const Job& job);

/// Returns the positions of a sequence that a masked language model predicts: a share of
/// mask_probability, rounded, and at least one.
std::int64_t masked_positions(const Job& job);

/// Returns the tokens of a step that are of examples, as expected: padding does not count.
std::int64_t tokens_per_step(const Job& job);

/// Returns the matmul FLOPs of one sequence's forward pass by the definition of MFU
/// (docs/glossary.md). Attention counts in full, causal or not, but for what a window and examples
/// leave out (share_in_window()). Logits count, padding and recompute do not.
Flops forward_matmul_flops_per_sequence(const Job& job);
/// Returns those of forward and backward: a product has two gradients, and one where its weight is
/// frozen.
Flops training_matmul_flops_per_sequence(const Job& job);

}  // namespace plimsoll
