#include "published/published_run.h"

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "published/document_facts.h"

namespace plimsoll {
namespace {

// Beyond what a job file may say (docs/reference/job.md), so that its own rules speak where they
// can.
constexpr std::int64_t kMost = std::int64_t{1} << 24;

std::optional<std::int64_t> maybe_integer(JsonObject& row, std::string_view key) {
  if (!row.has(key)) return std::nullopt;
  return row.integer(key, 1, kMost);
}

std::optional<double> maybe_number(JsonObject& row, std::string_view key) {
  if (!row.has(key)) return std::nullopt;
  return row.number(key, 0, 1e30);
}

std::optional<bool> maybe_boolean(JsonObject& row, std::string_view key) {
  if (!row.has(key)) return std::nullopt;
  return row.boolean(key);
}

std::string maybe_text(JsonObject& row, std::string_view key) {
  return row.has(key) ? row.text(key) : "";
}

void read_hardware(JsonObject hardware, PublishedRun& run) {
  run.gpu = hardware.text("gpu");
  run.interconnect = maybe_text(hardware, "interconnect");
  run.gpu_memory_gb = maybe_number(hardware, "gpu_mem_gb");
  run.gpus = maybe_integer(hardware, "gpus").value_or(0);
  run.gpus_per_node = maybe_integer(hardware, "gpus_per_node");
}

void read_model(JsonObject model, PublishedRun& run) {
  run.model = model.text("name");
  run.hidden = maybe_integer(model, "hidden");
  run.layers = maybe_integer(model, "layers");
  run.heads = maybe_integer(model, "heads");
  run.kv_heads = maybe_integer(model, "kv_heads");
  run.ffn_hidden = maybe_integer(model, "ffn_hidden");
  run.vocab = maybe_integer(model, "vocab");
  run.sequence = maybe_integer(model, "seq_len");
  run.activation = maybe_text(model, "activation");
}

std::int64_t degree(JsonObject& parallel, std::string_view key) {
  return parallel.has(key) ? parallel.integer(key, 1, kMost) : 1;
}

/// Without a number of GPUs and of replicas: one node, as many replicas as there is room for;
/// without a number of GPUs alone, those that the layout needs.
void fill_in_gpus(bool replicas_stated, PublishedRun& run) {
  if (run.gpus > 0) return;
  const std::int64_t of_one = run.tp * run.pp * run.cp;
  if (!replicas_stated && run.gpus_per_node.value_or(0) % of_one == 0) {
    run.dp = std::max<std::int64_t>(1, run.gpus_per_node.value_or(0) / of_one);
  }
  run.gpus = of_one * run.dp;
}

void read_parallel(JsonObject parallel, PublishedRun& run) {
  run.tp = degree(parallel, "tp");
  run.pp = degree(parallel, "pp");
  run.dp = degree(parallel, "dp");
  run.cp = degree(parallel, "cp");
  run.virtual_stages = maybe_integer(parallel, "vpp");
  if (parallel.has("zero_stage")) run.zero_stage = parallel.integer("zero_stage", 0, 3);
  run.sequence_parallel = maybe_boolean(parallel, "sequence_parallel");
}

void read_batch(JsonObject batch, PublishedRun& run) {
  run.micro_batch = maybe_integer(batch, "micro");
  run.global_batch = maybe_integer(batch, "global");
  run.accumulation = maybe_integer(batch, "grad_accum");
}

/// Bytes that a source prints as GB: 1e9 bytes, or `binary` 2^30, as torchtitan means it.
Bytes gigabytes(double count, bool binary) {
  return Bytes(std::llround(count * (binary ? 1073741824.0 : 1e9)));
}

void read_measured(JsonObject& row, PublishedRun& run) {
  JsonObject measured = row.object("measured");
  const auto time_of = [](JsonObject& object, std::string_view key) -> std::optional<Seconds> {
    if (!object.has(key)) return std::nullopt;
    return Seconds(object.number(key, 1e-9, 1e9));
  };
  run.step_time = time_of(measured, "step_time_s");
  if (const auto derived = time_of(row, "derived_step_time_s"); derived && !run.step_time) {
    run.step_time = derived;
    run.step_time_derived = true;
  }
  const bool binary = run.framework == "torchtitan";
  if (const auto peak = maybe_number(measured, "peak_mem_gb")) {
    const std::string kind = maybe_text(measured, "peak_mem_kind");
    const Bytes bytes = gigabytes(*peak, binary);
    if (kind == "allocated") run.memory_allocated = bytes;
    if (kind == "reserved") run.memory_reserved = bytes;
    if (kind == "device") run.memory_device = bytes;
  }
  if (const auto peak = maybe_number(measured, "peak_mem_allocated_gib"))
    run.memory_allocated = gigabytes(*peak, true);
  if (const auto peak = maybe_number(measured, "peak_mem_reserved_gib"))
    run.memory_reserved = gigabytes(*peak, true);
  run.out_of_memory = maybe_boolean(row, "oom").value_or(false);
}

/// Vocabulary of a tokenizer that has no text: as many as its flag says, and an end of document
/// (Megatron-LM training/tokenizer/tokenizer.py, _NullTokenizer).
void read_tokenizer(JsonObject& row, PublishedRun& run) {
  if (run.vocab || !row.has("seq_fields")) return;
  JsonObject fields = row.object("seq_fields");
  const auto stated = maybe_integer(fields, "vocab_size");
  if (stated && maybe_text(fields, "tokenizer") == "NullTokenizer") run.vocab = *stated + 1;
}

/// BigScience's tables on V100 (experiments/gpt2.md) say in headings and columns how state is
/// sharded and what of it lies on the host. "Megatron + Deepspeed ZeRO" is Megatron-LM-v1.1.5-ZeRO3
/// with activations partitioned, and copied to the host where column PA_CPU does not say no
/// (gpt2-meg-ds-zero/meg_ds_zero_gpt2_perf_n16.slurm: stage 3, PA, PA_CPU); "HF + Deepspeed Zero 3
/// + Full Offload" has columns of what is offloaded, else it is all.
void read_offload(JsonObject& row, PublishedRun& run) {
  const bool own = run.source.find("Megatron + Deepspeed ZeRO") != std::string::npos;
  const bool trainer = run.source.find("HF + Deepspeed Zero 3") != std::string::npos;
  if (!own && !trainer) return;
  if (!run.zero_stage) run.zero_stage = 3;
  std::string stays, optimizer, parameters;
  if (row.has("extra")) {
    JsonObject columns = row.object("extra");
    stays = maybe_text(columns, "PA_CPU");
    optimizer = maybe_text(columns, "Opt Offl");
    parameters = maybe_text(columns, "Par Offl");
  }
  if (own) run.checkpoints = stays == "N" ? CheckpointMemory::split : CheckpointMemory::on_host;
  run.host_optimizer = trainer && optimizer != "N";
  run.host_parameters = trainer && parameters != "N";
}

void read_overlap(JsonObject& row, PublishedRun& run) {
  run.overlap_grad_reduce = maybe_boolean(row, "overlap_grad_reduce");
  run.overlap_param_gather = maybe_boolean(row, "overlap_param_gather");
  if (!row.has("overlap")) return;
  JsonObject overlap = row.object("overlap");
  run.overlap_tensor_parallel = maybe_boolean(overlap, "tp_comm");
  if (!run.overlap_grad_reduce) run.overlap_grad_reduce = maybe_boolean(overlap, "grad_reduce");
  if (!run.overlap_param_gather) run.overlap_param_gather = maybe_boolean(overlap, "param_gather");
}

/// Whether the value stands with the measurement, not in some configuration file beside it: rows
/// say so in their notes, as "precision, recompute and vocabulary taken from ..., not printed with
/// the measurement".
bool printed(JsonObject& row, std::string_view key) {
  const std::string notes = maybe_text(row, "notes");
  const std::size_t end = notes.find("not printed with the measurement");
  return end == std::string::npos || notes.rfind(key, end) == std::string::npos;
}

PublishedRun read_row(JsonObject row) {
  PublishedRun run;
  run.id = row.text("id");
  run.use = maybe_text(row, "use");
  JsonObject source = row.object("source");
  run.source = source.text("repo_or_doc") + ", " + source.text("path_or_issue");
  read_hardware(row.object("hardware"), run);
  read_model(row.object("model"), run);
  const bool replicas_stated = row.object("parallel").has("dp");
  read_parallel(row.object("parallel"), run);
  fill_in_gpus(replicas_stated, run);
  if (row.has("partition")) run.partition = row.integers("partition", 0, kMost);
  if (row.has("layers_per_stage"))
    run.layers_per_stage = row.integers("layers_per_stage", 0, kMost);
  read_batch(row.object("batch"), run);
  run.gated_ffn = maybe_boolean(row, "swiglu");
  if (row.has("dropout")) run.dropout = row.number("dropout", 0, 0.99);
  read_overlap(row, run);
  run.precision = row.text("precision");
  run.recompute = printed(row, "recompute") ? row.text("recompute") : "unknown";
  run.attention = row.text("attention");
  run.framework = maybe_text(row, "framework");
  run.framework_version = maybe_text(row, "framework_version");
  run.compiled = maybe_boolean(row, "compile");
  run.async_tp = maybe_boolean(row, "async_tp");
  run.reduce_dtype = maybe_text(row, "reduce_dtype");
  run.sharding = maybe_text(row, "sharding");
  read_tokenizer(row, run);
  read_offload(row, run);
  run.finetuning = maybe_text(row, "finetuning");
  if (row.has("needs")) run.needs = row.texts("needs");
  read_measured(row, run);
  apply_document_facts(run);
  return run;
}

}  // namespace

std::string_view to_text(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::allocated:
      return "allocated";
    case MemoryKind::reserved:
      return "reserved";
    case MemoryKind::device:
      return "device";
  }
  INVARIANT(false, "a kind of memory");
}

std::vector<PublishedRun> parse_published_runs(std::string_view text, const std::string& file) {
  const Json document = parse_json(text, file);
  if (!document.is_array()) {
    throw InputError(file, "", "expected an array of rows, each one published run");
  }
  std::vector<PublishedRun> runs;
  for (std::size_t i = 0; i < document.size(); ++i) {
    runs.push_back(read_row(JsonObject(document[i], file, "/" + std::to_string(i))));
  }
  return runs;
}

std::vector<PublishedRun> read_published_runs(const std::filesystem::path& path) {
  std::vector<PublishedRun> runs = parse_published_runs(read_file(path.string()), path.string());
  for (PublishedRun& run : runs) run.family = path.stem().string();
  return runs;
}

}  // namespace plimsoll
