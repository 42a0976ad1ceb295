// Published run: one measured training step that somebody published, as a row of a cases file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// The kind of memory that a source counts.
enum class MemoryKind : std::uint8_t {
  allocated,  ///< live bytes in the framework's allocator
  reserved,   ///< what that allocator holds
  device,     ///< what the driver shows as used
};
std::string_view to_text(MemoryKind kind);

/// Facts as the source states them, in its table or elsewhere (published/document_facts.h); absent
/// = not stated there. Nothing is derived here.
struct PublishedRun {
  std::string family;           ///< name of its file, without .json
  std::string id, use, source;  ///< source: "repository or document, place in it"

  // Hardware.
  std::string gpu, interconnect;  ///< free text: "A100-80GB SXM", "8x100 Gb/s between nodes"
  std::optional<double> gpu_memory_gb;
  std::int64_t gpus = 0;
  std::optional<std::int64_t> gpus_per_node;

  // Model.
  std::string model;
  std::optional<std::int64_t> hidden, layers, heads, kv_heads, ffn_hidden, vocab, sequence;
  std::optional<bool> gated_ffn;  ///< SwiGLU, where the row says
  std::string activation;         ///< of the MLP, where the row says: "squared-relu"
  std::optional<bool> tied_embeddings;
  std::optional<double> dropout;

  // Parallelism.
  std::int64_t tp = 1, pp = 1, dp = 1, cp = 1;
  std::optional<std::int64_t> virtual_stages, zero_stage;
  std::optional<bool> sequence_parallel;
  /// Where each stage begins, and the last ends, in the source's own list of the model's parts;
  /// empty: not stated.
  std::vector<std::int64_t> partition;
  /// Layers of each stage, with the embedding and the head as a layer each where they sum to two
  /// more than the model has; empty: not stated.
  std::vector<std::int64_t> layers_per_stage;
  std::optional<bool> overlap_grad_reduce, overlap_param_gather;
  /// Gathers and scatters of tokens beside the products that they feed (Transformer Engine's user
  /// buffers).
  std::optional<bool> overlap_tensor_parallel;

  // Batch, in sequences.
  std::optional<std::int64_t> micro_batch, global_batch, accumulation;

  /// "unknown" too where the notes say that it was not printed with the measurement.
  std::string precision, recompute, attention;  ///< "fp16", "full", "flash", ... or "unknown"
  std::string framework, framework_version;     ///< empty: not stated
  std::optional<bool> compiled, async_tp;
  std::string reduce_dtype, finetuning;
  /// The sharding of fully sharded runs: "HSDP" (shards within a node, replicas over nodes),
  /// "FSDP"; or empty.
  std::string sharding;
  std::optional<LossMemory> loss_memory;  ///< where the program's differs from its framework's
  std::optional<Bytes> handle_workspace;  ///< of each of PyTorch's cuBLAS handles
  /// States and parameters in the host's memory (DeepSpeed's offloading), and where checkpoints of
  /// layers lie.
  bool host_optimizer = false, host_parameters = false;
  CheckpointMemory checkpoints = CheckpointMemory::on_device;
  /// Features that a predictor must support to be judged on the row, and facts that the source
  /// lacks.
  std::vector<std::string> needs;

  // Measured.
  std::optional<Seconds> step_time;  ///< printed by the source, else derived from its throughput
  bool step_time_derived = false;
  std::optional<Bytes> memory_allocated, memory_reserved, memory_device;
  bool out_of_memory = false;

  /// It ran for its time, not only for its memory.
  bool has_step_time() const {
    return step_time && !out_of_memory && !use.starts_with("memory_only");
  }
};

/// Rows of a cases file: a JSON array of objects, of which other keys are ignored, since rows carry
/// notes in the words of their sources. Throws InputError with file and pointer.
std::vector<PublishedRun> read_published_runs(const std::filesystem::path& path);
std::vector<PublishedRun> parse_published_runs(std::string_view text, const std::string& file);

}  // namespace plimsoll
