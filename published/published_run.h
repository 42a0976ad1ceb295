// Published run: one measured training step that somebody published, as a stated row says it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// The kind of memory that a source counts.
enum class MemoryKind : std::uint8_t {
  allocated,  ///< live bytes in the framework's allocator
  reserved,   ///< what that allocator holds
  device,     ///< what the driver shows as used
};
std::string_view to_text(MemoryKind kind);

/// The recompute that a source states.
enum class StatedRecompute : std::uint8_t {
  unknown,
  none,
  selective,  ///< the attention core where scores are kept; nothing where they are not
  full,
  per_op,
  layers,  ///< every n-th layer, where n is one of PublishedRun::recompute_every
};
inline constexpr std::string_view kStatedRecomputes[] = {"unknown", "none",   "selective",
                                                         "full",    "per_op", "layers"};

/// A node that joins the trays of a rack, of which sources state the trays.
struct Rack {
  std::int64_t devices = 0;
  std::int64_t used_of_several = 0;  ///< devices in use of each rack where a run takes several
  bool operator==(const Rack&) const = default;
};

/// Facts as the row and its rules state them (published/stated_row.h); absent = not stated there.
/// Nothing is derived here.
struct PublishedRun {
  std::string family;           ///< name of its file, without .json
  std::string id, use, source;  ///< source: "repository or document, place in it"

  // Hardware.
  std::string gpu, interconnect;   ///< free text: "A100-80GB SXM", "8x100 Gb/s between nodes"
  std::string cluster;             ///< name of the preset; empty: none is of that GPU
  bool network_as_stated = false;  ///< the rate that `interconnect` states replaces the preset's
  std::optional<Rack> rack;
  std::int64_t gpus = 0;
  std::optional<std::int64_t> gpus_per_node;

  // Model.
  std::string model;
  std::optional<std::int64_t> hidden, layers, heads, kv_heads, ffn_hidden, vocab, sequence;
  Family architecture = Family::gpt;
  std::optional<Activation> activation;  ///< where it is not the family's usual one
  std::optional<NormKind> norm;
  std::optional<bool> tied_embeddings;
  double dropout = 0;
  std::string precision_words;     ///< as in the row
  std::optional<DType> precision;  ///< that matmuls compute in, but those of layers in FP8

  // Parallelism.
  std::int64_t tp = 1, pp = 1, dp = 1, cp = 1;
  std::optional<std::int64_t> virtual_stages, zero_stage;
  std::optional<bool> sequence_parallel;
  bool splits_boundary = false;  ///< ranks that share a layer hand a part each to the next stage
  /// Where each stage begins, and the last ends, in the source's own list of the model's parts, in
  /// which so many come before and after the layers; empty: not stated.
  std::vector<std::int64_t> partition;
  std::optional<std::int64_t> parts_before_layers, parts_after_layers;
  /// Layers of each stage, with the embedding and the head as a layer each where they sum to two
  /// more than the model has; empty: not stated.
  std::vector<std::int64_t> layers_per_stage;
  /// Layers of the first stage and of the last, where the others share the rest.
  std::optional<std::int64_t> layers_of_ends;
  /// Shards lie within a node, and replicas of them on others.
  bool shards_within_node = false;

  // Batch, in sequences.
  std::optional<std::int64_t> micro_batch, global_batch, accumulation;
  /// `micro_batch` is cut into as many micro-batches as the pipeline has stages.
  bool micro_is_local_batch = false;

  // The program.
  std::string framework_words;         ///< as in the row
  std::optional<Framework> framework;  ///< absent: no preset is of it
  /// PyTorch has this for each of two cuBLAS handles; an engine of its own has more.
  std::optional<Bytes> handle_workspace, engine_workspace;
  bool pads_vocabulary = false;
  StatedRecompute recompute = StatedRecompute::unknown;
  std::vector<std::int64_t> recompute_every;
  Fp8 fp8 = Fp8::none;
  bool fp8_parameters = false;  ///< kept and gathered in 8 bits where their shards can be
  GradientType gradient_type = GradientType::f32;
  std::string finetuning;
  /// Features that a predictor must support to be judged on the row, and facts that the source
  /// lacks.
  std::vector<std::string> needs;
  /// A need that no row names, as its rules say.
  std::string also_needs;

  // Measured.
  std::optional<Seconds> step_time;  ///< printed by the source, else derived from its throughput
  bool step_time_derived = false;
  std::optional<Bytes> memory_allocated, memory_reserved, memory_device;
  /// Memory is that of the last rank, not of the one that has most.
  bool memory_of_last_rank = false;
  bool out_of_memory = false;

  /// It ran for its time, not only for its memory.
  bool has_step_time() const {
    return step_time && !out_of_memory && !use.starts_with("memory_only");
  }
};

/// Rows of a cases file, raw or stated (docs/reference/published-runs.md): a JSON array of objects,
/// of which other keys are ignored, since rows carry notes in the words of their sources. Throws
/// InputError with file and pointer.
std::vector<PublishedRun> read_published_runs(const std::filesystem::path& path);
std::vector<PublishedRun> parse_published_runs(std::string_view text, const std::string& file);

}  // namespace plimsoll
