// A BlockBuilder writes one block of a forward Graph op by op. It is internal to models/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/job/job.h"

namespace plimsoll {

/// The standard deviation of initial weights in GPT-2 (Radford et al. 2019) and BERT (Devlin et al.
/// 2019, section A.2 of the released code). GPT-3, Megatron-LM and LLaMA's descendants keep it.
inline constexpr double kInitStddev = 0.02;

/// Tensor names are BLOCK.NAME. In shapes, n is the micro-batch's tokens (sequences x sequence
/// length) and h is the hidden size.
class BlockBuilder {
 public:
  /// `micro_batch` is the number of sequences of one micro-batch.
  BlockBuilder(Graph& graph, const Job& job, std::int64_t micro_batch, std::string name,
               BlockKind kind, std::int64_t count = 1);

  const Job& job() const { return job_; }
  std::int64_t micro_batch() const { return micro_batch_; }
  std::int64_t tokens() const { return micro_batch_ * job_.sequence; }
  Block& definition() { return graph_.at(block_); }
  const Shape& shape(TensorId id) const { return graph_.at(id).shape; }

  TensorId tensor(const std::string& name, Shape shape, DType dtype = DType::f32);
  /// Adds f32 values that a rank keeps from step to step for each instance of the block, and that
  /// no gradient reaches.
  TensorId state(const std::string& name, Shape shape);
  /// Adds the activation that the previous block hands over, `hidden` wide, with `rows` rows for
  /// each token.
  TensorId input(std::int64_t hidden, std::int64_t rows = 1);
  void output(TensorId id);

  /// Adds a parameter. `split_dim` is the dimension that tensor parallelism splits, if any.
  TensorId parameter(const std::string& name, Shape shape, Init init, double stddev,
                     std::optional<std::int64_t> split_dim);
  void op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
          OpParams params = {});

  TensorId layer_norm(const std::string& name, TensorId x, double epsilon, bool bias = true);
  /// Norms rows of the last `dims` dimensions.
  TensorId rms_norm(const std::string& name, TensorId x, double epsilon, std::size_t dims = 1);
  /// Norms rows of the last dimension without a weight.
  TensorId plain_norm(const std::string& name, TensorId x, double epsilon);

  struct Linear {
    Shape out;  ///< y = x W + b with x [n, k], W [k, out...]
    double stddev = kInitStddev;
    /// The split dimension of W. Column-parallel layers split a dimension of `out`, counted in W;
    /// row-parallel layers split dimension 0. Nothing: the layer is not split.
    std::optional<std::int64_t> split_dim = std::nullopt;
    bool bias = true;
    std::optional<AdapterTarget> target = {};  ///< the adapter that the layer may have
  };
  TensorId linear(const std::string& name, TensorId x, const Linear& layer);
  /// Returns whether the job has an adapter at the target.
  bool adapts(AdapterTarget target) const {
    return job_.adapters && job_.adapters->targets.has(target);
  }

  /// Adds a parameter of an adapter, which is trained.
  TensorId adapter(const std::string& name, Shape shape, Init init,
                   std::optional<std::int64_t> split_dim);

  TensorId add(const std::string& name, TensorId a, TensorId b);
  TensorId gelu(const std::string& name, TensorId x);
  /// Returns x where the factor is 1.
  TensorId multiply(const std::string& name, TensorId x, double factor);
  /// Returns x where the job has no dropout. Every dropout of the graph has a site of its own.
  TensorId dropout(const std::string& name, TensorId x);

  /// The choices in which families differ in self-attention.
  struct Attention {
    std::int64_t heads = 0, kv_heads = 0, hidden = 0;
    std::int64_t head_width = 0;  ///< columns of a head; 0: hidden / heads
    bool causal = true, qkv_bias = true, out_bias = true, rotary = false;
    std::optional<double> qk_norm_epsilon = {};  ///< of norms of each head's query and key
    bool qk_norm_across_heads = false, qk_norm_weight = true;
    bool sinks = false, alibi = false, alibi_scaled = false, gate = false;
    double out_stddev = kInitStddev;
    double rotary_base = 10000;
    RotaryScale rotary_scale = {};
    QueryGrowth growth = {};
    std::int64_t window = 0;  ///< as in AttentionParams
    bool chunks = false;
    double score_cap = 0;          ///< of scores; 0: none
    double score_factor = 1;       ///< in addition to 1 / sqrt(columns of a key)
    double latent_epsilon = 1e-5;  ///< of norms of latents, where the job has them
  };
  /// Adds projection(attention(query, key and value of x)).
  TensorId attention(TensorId x, const Attention& kind);

  /// Adds the cross entropy of logits against `targets`, of which the global batch has `count`.
  /// Where the job has MTP modules, each token has a row of logits for each of them, too.
  void loss(TensorId logits, TensorId targets, TensorId scalars, std::int64_t count);
  /// Adds logits = y table^T, with a bias and a soft cap where the job has them. The table is a
  /// parameter of its own or that of the embedding.
  TensorId logits(TensorId y, std::optional<TensorId> tied_to);

 private:
  struct Heads {
    TensorId q, k, v;
  };
  Heads split(TensorId x, const Attention& kind);
  Heads split_fused(TensorId x, const Attention& kind);
  Heads split_grouped(TensorId x, const Attention& kind);
  Heads split_apart(TensorId x, const Attention& kind);
  Heads split_latent(TensorId x, const Attention& kind);
  TensorId normed_heads(TensorId x, const std::string& name, const Attention& kind);
  TensorId rotated(TensorId x, std::int64_t parts, const std::string& name, const Attention& kind,
                   const QueryGrowth& growth = {});
  /// Adds heads [b,heads,rows,d] of a value [n,1,heads,d].
  TensorId heads_of(TensorId x, const std::string& name, const Shape& shape);
  DropoutParams next_dropout(double rate);
  TensorId matrix(const std::string& name, const Shape& shape, const Linear& layer);
  TensorId adapted(const std::string& name, TensorId x, TensorId y, const Linear& layer);

  Graph& graph_;
  const Job& job_;
  std::int64_t micro_batch_;
  BlockId block_;
  std::optional<TensorId> narrow_;  ///< x A of the adapter of qkv, or of kv_down
};

/// Adds the mixture of experts of a layer that reads x [n,h]; experts.cpp says what it computes.
TensorId mixture_of_experts(BlockBuilder& block, TensorId x, double out_stddev);
/// Returns the parameters of an activation's op.
OpParams params_of(const Job& job, OpKind activation);
/// Adds an MLP up to what its last layer reads. The names of its layers begin with `prefix`.
/// `weights` multiply the rows of a gated MLP, where there are some.
TensorId active_mlp(BlockBuilder& block, TensorId x, const std::string& prefix,
                    std::int64_t ffn_hidden, std::optional<TensorId> weights = std::nullopt);

/// These build the graphs of the families. Each family's file has the sources of its shape.
Graph build_gpt(const Job& job, std::int64_t micro_batch);
Graph build_llama(const Job& job, std::int64_t micro_batch);
Graph build_bert(const Job& job, std::int64_t micro_batch);  ///< and ernie

/// A graph with only the step's scalars, and their id.
struct EmptyGraph {
  Graph graph;
  TensorId scalars;
};
EmptyGraph empty_graph(const Job& job);

}  // namespace plimsoll
