// Job: a transformer and its training step, as a user describes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/tensor.h"

namespace plimsoll {

enum class Family : std::uint8_t {
  gpt,    ///< decoder with learned positions, pre layer norm, GELU
  llama,  ///< decoder with rotary embeddings, no biases, grouped-query attention
  bert,   ///< encoder with learned positions, post layer norm, GELU, masked-LM loss
  ernie,  ///< bert with a narrower task branch after the shared trunk (ERNIE 3.0)
};
/// The function that a llama layer applies between the products of its MLP.
enum class Activation : std::uint8_t {
  swiglu,        ///< silu(gate) up: three matrices
  squared_relu,  ///< max(x, 0)^2: two (Nemotron-4)
};
enum class NormKind : std::uint8_t {
  rms_norm,    ///< a weight
  layer_norm,  ///< a weight and a bias (Nemotron-4)
};
enum class OptimizerKind : std::uint8_t { adamw, sgd, lamb };

/// Parameters that are updated differently: those of a kind ("weight", "bias", "norm",
/// "embedding"), of a block ("layer"), or one by name ("layer.fc1.weight").
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
  double momentum = 0.9;                    ///< sgd
  std::vector<ParameterGroup> groups = {};  ///< later ones override earlier ones
  bool operator==(const Optimizer&) const = default;
};

/// Dynamic loss scaling of fp16 training. Defaults as torch.amp.GradScaler's; from Megatron-LM's
/// 2^32 the first dozen or more steps would be skipped.
struct LossScale {
  double initial = 65536, growth = 2, backoff = 0.5;
  std::int64_t growth_interval = 2000;  ///< steps in a row without overflow
  bool operator==(const LossScale&) const = default;
};

/// ERNIE: layers after the trunk, joined to it by a linear layer with bias.
struct Branch {
  std::int64_t layers = 0, hidden = 0, heads = 0, ffn_hidden = 0;
  bool operator==(const Branch&) const = default;
};

struct Job {
  std::string name;
  Family family = Family::gpt;
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn_hidden = 0, vocab = 0;
  std::int64_t sequence = 0;
  bool tied_embeddings = true;
  std::int64_t global_batch = 0;  ///< sequences per step
  /// The type that matmuls compute in. bf16: mixed precision, with f32 masters, gradients and
  /// optimizer state.
  DType precision = DType::f32;
  /// Parameters that stay f32 beside another precision, as an optimizer's groups match them; ops
  /// that read them compute in f32 (AMP's black list of variables).
  std::vector<std::string> fp32_parameters = {};
  bool qkv_bias = false;                       ///< llama: biases of query, key and value (Qwen2)
  double rotary_base = 10000;                  ///< llama
  Activation activation = Activation::swiglu;  ///< llama
  NormKind norm = NormKind::rms_norm;          ///< llama
  std::int64_t token_types = 0;                ///< bert, ernie: rows of the token type table
  /// bert: a dense layer of hidden x hidden before the logits, as large as BERT's pooler, which
  /// only its next-sentence prediction reads.
  bool pooler = false;
  double mask_probability = 0.15;       ///< bert, ernie: share of positions that the loss counts
  std::optional<Branch> branch;         ///< ernie
  std::optional<LossScale> loss_scale;  ///< always there for fp16; else where a file asks for it
  Optimizer optimizer;
  double clip_norm = 1.0;  ///< 0 = no clipping
  double dropout = 0;
  std::int64_t seed = 0;
  bool operator==(const Job&) const = default;
};

/// A file, or the name of a preset.
Job read_job(const std::filesystem::path& path);
Job parse_job(std::string_view text, const std::string& file);
std::string job_text(const Job& job);  ///< canonical JSON text, ends with a newline

/// Sets weight_decay, clip and rate of the parameters that the optimizer's groups match.
void apply_parameter_groups(Graph& graph, const Job& job);
/// By tensor of the Graph, before or after its ops became kernels: whether it is a parameter that a
/// match of the list says, or is tied to one.
std::vector<bool> matched_parameters(const Graph& graph, const std::vector<std::string>& matches);
/// If that matches no parameter of this graph: the matches that it has.
std::optional<std::string> unmatched_group(const Graph& graph, std::string_view match);

/// Rules inside the file: sizes within the limits of docs/reference/job.md, heads divide hidden,
/// kv_heads divide heads, and which fields a family has. Throws InputError at `file`.
void check_job(const Job& job, const std::string& file);

/// The forward pass of one micro-batch of `micro_batch` sequences, with abstract ops (linear,
/// attention), op by op: blocks embedding x 1, layer x L, head x 1; with a branch embedding, layer
/// x L, join, branch_layer x M, head. What each family computes stands in gpt.cpp, llama.cpp,
/// bert.cpp.
Graph build_forward(const Job& job, std::int64_t micro_batch);

/// Layers of trunk and branch together: what pipeline stages and layer lists count.
std::int64_t total_layers(const Job& job);

/// Positions of a sequence that a masked language model predicts: mask_probability of them,
/// rounded, at least one.
std::int64_t masked_positions(const Job& job);

/// Matmul FLOPs of one sequence's forward pass by the MFU definition (docs/glossary.md): attention
/// counted full, causal or not, logits included, recompute not.
Flops forward_matmul_flops_per_sequence(const Job& job);

}  // namespace plimsoll
