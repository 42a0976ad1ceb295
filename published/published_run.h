// A published run is one measured training step that somebody published, as a stated row has it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "plan/memory_interval.h"

namespace plimsoll {

/// A StatedRecompute is the recompute that a source states.
enum class StatedRecompute : std::uint8_t {
  unknown,
  none,
  /// PublishedRun::recompute_modules where there are some, else the attention core. Where no scores
  /// are kept, attention cores are nothing to repeat.
  selective,
  full,
  per_op,
  layers,  ///< every n-th layer, where n is one of PublishedRun::recompute_every
};
inline constexpr std::string_view kStatedRecomputes[] = {"unknown", "none",   "selective",
                                                         "full",    "per_op", "layers"};

/// A CountedAttention says which scores of causal attention a source counts in a rate of FLOP/s.
enum class CountedAttention : std::uint8_t { whole, seen };
inline constexpr std::array<std::string_view, 2> kCountedAttentions = {"whole", "seen"};

/// A Rack is a node that joins the trays of a rack; sources count the trays.
struct Rack {
  std::int64_t devices = 0;
  std::int64_t used_of_several = 0;  ///< devices in use of each rack, for runs on several racks
  bool operator==(const Rack&) const = default;
};

/// A PublishedRun has the facts of a stated row. Absent facts are not stated, and nothing is
/// derived here.
struct PublishedRun {
  std::string family;           ///< name of its file, without .json
  std::string id, use, source;  ///< source: "repository or document, place in it"

  // Hardware.
  std::string gpu, interconnect;               ///< free text, which tells machines apart
  std::string cluster;                         ///< name of the preset; empty: none is of that GPU
  std::optional<Cluster> own_cluster;          ///< instead of the preset: a user's file (put_on())
  std::optional<BytesPerSecond> network_rate;  ///< of a device between nodes; absent: the preset's
  std::string network;               ///< kind of the network between nodes; empty: the preset's
  std::optional<double> core_speed;  ///< of the hosts (Host::core_speed); absent: the preset's
  std::optional<Rack> rack;
  std::int64_t gpus = 0;
  std::optional<std::int64_t> gpus_per_node;

  // Model.
  std::string model;
  std::optional<std::int64_t> hidden, layers, heads, kv_heads, ffn_hidden, vocab, sequence;
  std::optional<std::int64_t> head_size;
  std::optional<Experts> experts;
  std::optional<Latent> latent;
  bool qk_norm = false;
  /// A job with the biases, sinks and windows of the model, which rows do not state.
  std::optional<Job> attributes;
  std::int64_t predicted_ahead = 0;  ///< multi-token prediction modules
  Family architecture = Family::gpt;
  std::optional<Activation> activation;  ///< where it is not the family's usual one
  std::optional<NormKind> norm;
  std::optional<bool> tied_embeddings;
  double dropout = 0;
  std::optional<Adapters> adapters;  ///< as in a job
  FrozenWeights frozen_weights = FrozenWeights::computed;
  std::optional<double> clip_norm;  ///< where it is not the usual one; 0: no gradient is clipped
  std::string precision_words;      ///< words of the row
  std::optional<DType> precision;   ///< type of matmuls, except in layers that are in FP8

  // Parallelism.
  std::int64_t tp = 1, pp = 1, dp = 1, cp = 1, ep = 1;
  std::int64_t etp = 0;  ///< ranks that share each expert; 0: not stated
  std::optional<std::int64_t> virtual_stages, zero_stage;
  std::optional<std::int64_t> shards;  ///< data-parallel ranks that share one copy of the states
  std::optional<bool> sequence_parallel;
  /// Whether a forward and a backward are issued in turns, to hide the exchanges of experts.
  bool overlaps_expert_exchange = false;
  /// Types, parts of the loss and shares on the host, which a row states as in a strategy. All
  /// other choices are the default.
  Strategy chosen;
  bool splits_boundary = false;  ///< ranks that share a layer each send a part to the next stage
  /// The layers of each stage, or of each chunk of the model in its order. Where they sum to two
  /// more than the model has, the embedding and the head count as a layer each. Empty: not stated.
  std::vector<std::int64_t> layers_per_stage;
  Schedule schedule = Schedule::one_f_one_b;
  /// The layers that the embedding, and the head, count as where layers are spread evenly.
  std::int64_t ends_as_layers = 0;
  /// Whether shards lie within a node, and their replicas on other nodes.
  bool shards_within_node = false;

  // Batch, in sequences.
  std::optional<std::int64_t> micro_batch, global_batch, accumulation;

  // The next fields are about the program.
  std::string release;                 ///< of the framework, in words of the row
  std::vector<std::string> kernels;    ///< of attention and others, in words of the row
  std::optional<Framework> framework;  ///< absent: there is no preset of it
  bool pads_vocabulary = false;
  StatedRecompute recompute = StatedRecompute::unknown;
  std::vector<std::int64_t> recompute_every;
  SetOf<RecomputedModule> recompute_modules;  ///< of selective recompute, where a source names them
  Fp8 fp8 = Fp8::none;
  bool fp8_parameters = false;  ///< kept and gathered in 8 bits where their shards can be
  /// Features that a predictor must support to be judged on the row, and facts that the source
  /// lacks.
  std::vector<std::string> needs;
  /// A need that the rules state and the row does not name.
  std::string also_needs;

  // The next fields are measured.
  std::optional<Seconds> step_time;  ///< printed by the source, else derived from its throughput
  bool step_time_derived = false;
  std::optional<Bytes> memory_allocated, memory_reserved, memory_device;
  /// Whether memory is that of the last rank, and not that of the rank with most memory.
  bool memory_of_last_rank = false;
  bool out_of_memory = false;

  /// Returns whether the run has a time, and was not published for its memory only.
  bool has_step_time() const {
    return step_time && !out_of_memory && !use.starts_with("memory_only");
  }
};

/// Reads a file of stated rows (docs/reference/published-runs.md): a JSON array of objects. Unknown
/// keys are ignored, since rows carry notes in the words of their sources. Throws InputError with
/// file and pointer, also for a raw row, which rules have not been applied to.
std::vector<PublishedRun> read_published_runs(const std::filesystem::path& path);
std::vector<PublishedRun> parse_published_runs(std::string_view text, const std::string& file);

}  // namespace plimsoll
