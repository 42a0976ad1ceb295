// Rows of cases files, read into PublishedRun.
#include "published/published_run.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "models/cluster/network_kind.h"
#include "models/framework/framework_json.h"
#include "models/job/job_words.h"
#include "models/presets/presets.h"
#include "published/published_job.h"

namespace plimsoll {
namespace {

// Beyond what a job file may say (docs/reference/job.md), so that its own rules speak where they
// can.
constexpr std::int64_t kMostInteger = std::int64_t{1} << 24;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

std::optional<std::int64_t> maybe_integer(JsonObject& row, std::string_view key) {
  if (!row.has(key)) return std::nullopt;
  return row.integer(key, 1, kMostInteger);
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
  run.gpus = hardware.integer("gpus", 1, kMostInteger);
  run.gpus_per_node = maybe_integer(hardware, "gpus_per_node");
}

Latent latent_of(JsonObject mla) {
  Latent latent;
  latent.q_rank = maybe_integer(mla, "q_lora_rank").value_or(0);
  latent.kv_rank = mla.integer("kv_lora_rank", 1, kMostInteger);
  latent.nope = mla.integer("qk_nope_head_dim", 1, kMostInteger);
  latent.rope = mla.integer("qk_rope_head_dim", 1, kMostInteger);
  latent.value = mla.integer("v_head_dim", 1, kMostInteger);
  return latent;
}

Experts experts_of(JsonObject& model) {
  Experts experts;
  experts.count = model.integer("experts", 2, kMostInteger);
  experts.chosen = model.integer("top_k", 1, kMostInteger);
  experts.ffn_hidden = maybe_integer(model, "expert_ffn_hidden")
                           .value_or(maybe_integer(model, "ffn_hidden").value_or(0));
  if (model.has("shared_expert_ffn_hidden"))
    experts.shared_ffn_hidden = model.integer("shared_expert_ffn_hidden", 0, kMostInteger);
  if (model.has("dense_layers"))
    experts.dense_layers = model.integer("dense_layers", 0, kMostInteger);
  const std::int64_t every = maybe_integer(model, "moe_every").value_or(1);
  if (every > 1) {  // the last layer of each group has experts
    experts.pattern.assign(std::size_t(every), false);
    experts.pattern.back() = true;
  }
  return experts;
}

/// How tokens are shared out, and how they travel. Without a word on balance a job's usual load
/// counts.
void read_routing(JsonObject moe, PublishedRun& run) {
  run.experts->capacity = maybe_number(moe, "capacity_factor").value_or(0);
  if (maybe_boolean(moe, "balanced").value_or(false)) run.experts->load = 1;
  if (const auto load = maybe_number(moe, "load")) run.experts->load = *load;
  run.experts->groups = maybe_integer(moe, "groups").value_or(1);
  run.experts->top_groups = maybe_integer(moe, "top_groups").value_or(1);
  run.overlaps_expert_exchange = maybe_boolean(moe, "a2a_overlap").value_or(false);
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
  run.head_size = maybe_integer(model, "head_dim");
  run.qk_norm = maybe_boolean(model, "qk_norm").value_or(false);
  if (model.has("experts")) run.experts = experts_of(model);
  if (model.has("mla")) run.latent = latent_of(model.object("mla"));
  if (model.has("mtp_layers")) run.predicted_ahead = model.integer("mtp_layers", 0, kMostInteger);
}

std::int64_t degree(JsonObject& parallel, std::string_view key) {
  return parallel.has(key) ? parallel.integer(key, 1, kMostInteger) : 1;
}

void read_parallel(JsonObject parallel, PublishedRun& run) {
  run.tp = degree(parallel, "tp");
  run.pp = degree(parallel, "pp");
  run.dp = degree(parallel, "dp");
  run.cp = degree(parallel, "cp");
  run.ep = degree(parallel, "ep");
  run.etp = maybe_integer(parallel, "etp").value_or(0);
  run.virtual_stages = maybe_integer(parallel, "vpp");
  if (parallel.has("zero_stage")) run.zero_stage = parallel.integer("zero_stage", 0, 3);
  run.shards = maybe_integer(parallel, "zero1_shards");
  run.sequence_parallel = maybe_boolean(parallel, "sequence_parallel");
}

void read_batch(JsonObject batch, PublishedRun& run) {
  run.micro_batch = maybe_integer(batch, "micro");
  run.global_batch = maybe_integer(batch, "global");
  run.accumulation = maybe_integer(batch, "grad_accum");
}

std::optional<Bytes> maybe_bytes(JsonObject& measured, std::string_view key) {
  if (!measured.has(key)) return std::nullopt;
  return Bytes(measured.integer(key, 0, kMostBytes));
}

/// `attention`: the scores that the source counts in a rate of FLOP/s. A step time follows from a
/// rate if the source prints none.
void read_measured(JsonObject& row, std::optional<CountedAttention> attention, PublishedRun& run) {
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
  run.memory_allocated = maybe_bytes(measured, "memory_allocated_bytes");
  run.memory_reserved = maybe_bytes(measured, "memory_reserved_bytes");
  run.memory_device = maybe_bytes(measured, "memory_device_bytes");
  run.out_of_memory = maybe_boolean(row, "oom").value_or(false);
  const auto rate = maybe_number(measured, "flops_per_s");
  if (run.step_time || !rate || !attention) return;
  run.step_time = step_time_of(run, FlopsPerSecond(*rate), *attention);
  run.step_time_derived = run.step_time.has_value();
}

template <class Enum, std::size_t count>
std::optional<Enum> maybe_choice(JsonObject& object, std::string_view key,
                                 const std::array<std::string_view, count>& words) {
  if (!object.has(key)) return std::nullopt;
  return static_cast<Enum>(object.choice(key, words));
}

void read_framework(JsonObject& stated, PublishedRun& run) {
  if (!stated.has("framework")) return;
  const std::string name = stated.text("framework");
  const Framework* known = find_framework(name);
  if (known == nullptr) stated.fail("framework", "the frameworks are " + known_frameworks());
  run.framework = *known;
  if (stated.has("framework_fields")) set_fields(stated.object("framework_fields"), *run.framework);
}

void read_recompute(JsonObject& stated, PublishedRun& run) {
  if (!stated.has("recompute")) return;
  run.recompute = StatedRecompute(stated.choice("recompute", kStatedRecomputes));
  if (run.recompute == StatedRecompute::layers || stated.has("recompute_every"))
    run.recompute_every = stated.integers("recompute_every", 1, kMostInteger);
  if (!stated.has("recompute_modules")) return;
  JsonObject modules = stated.object("recompute_modules");
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    if (maybe_boolean(modules, kRecomputedModules[i]).value_or(false))
      run.recompute_modules.add(RecomputedModule(i));
  }
  modules.finish();
}

void read_stated_model(JsonObject& stated, PublishedRun& run) {
  run.architecture = maybe_choice<Family>(stated, "family", kFamilies).value_or(Family::gpt);
  run.activation = maybe_choice<Activation>(stated, "activation", kActivations);
  run.norm = maybe_choice<NormKind>(stated, "norm", kNorms);
  run.tied_embeddings = maybe_boolean(stated, "tied_embeddings");
  if (const auto type = maybe_choice<std::size_t>(stated, "precision", kPrecisions))
    run.precision = kPrecisionTypes[*type];
  run.pads_vocabulary = maybe_boolean(stated, "pads_vocabulary").value_or(false);
  const std::string attributes = maybe_text(stated, "attributes_of");
  if (attributes.empty()) return;
  const auto preset = find_preset(job_presets(), attributes);
  if (!preset) stated.fail("attributes_of", "no job preset has that name");
  run.attributes = parse_job(*preset, attributes);
}

/// Returns how the source counts FLOP/s.
std::optional<CountedAttention> read_stated(JsonObject stated, PublishedRun& run) {
  run.cluster = maybe_text(stated, "cluster");
  if (!run.cluster.empty() && !find_preset(cluster_presets(), run.cluster))
    stated.fail("cluster", "no cluster preset has that name");
  if (const auto rate = maybe_number(stated, "network_bytes_per_s"))
    run.network_rate = BytesPerSecond(*rate);
  run.network = maybe_text(stated, "network");
  if (!run.network.empty() && find_network_kind(run.network) == nullptr)
    stated.fail("network", "known: " + known_network_kinds());
  if (stated.has("core_speed")) run.core_speed = stated.number("core_speed", 0.1, 10);
  if (stated.has("rack")) {
    JsonObject rack = stated.object("rack");
    run.rack = {rack.integer("devices", 1, kMostInteger),
                rack.integer("used_of_several", 1, kMostInteger)};
    rack.finish();
  }
  read_stated_model(stated, run);
  read_framework(stated, run);
  read_recompute(stated, run);
  if (stated.has("fp8")) run.fp8 = Fp8(stated.choice("fp8", kFp8s));
  run.fp8_parameters = maybe_boolean(stated, "fp8_parameters").value_or(false);
  if (stated.has("gradient_type"))
    run.gradient_type = GradientType(stated.choice("gradient_type", kGradientTypes));
  if (stated.has("moment_type"))
    run.moment_type = MomentType(stated.choice("moment_type", kMomentTypes));
  if (stated.has("offload_optimizer_percent"))
    run.offload_optimizer_percent = stated.integer("offload_optimizer_percent", 0, 100);
  run.splits_boundary = maybe_boolean(stated, "splits_boundary").value_or(false);
  run.ends_as_layers = maybe_integer(stated, "ends_as_layers").value_or(0);
  if (stated.has("schedule")) run.schedule = Schedule(stated.choice("schedule", kSchedules));
  run.shards_within_node = maybe_boolean(stated, "shards_within_node").value_or(false);
  run.clip_norm = maybe_number(stated, "clip_norm");
  run.memory_of_last_rank = maybe_boolean(stated, "memory_of_last_rank").value_or(false);
  run.also_needs = maybe_text(stated, "needs");
  const auto counted =
      maybe_choice<CountedAttention>(stated, "counted_attention", kCountedAttentions);
  stated.finish();
  return counted;
}

/// A row has the list of what rules stated, or it is raw: its words may mean anything.
void check_stated(JsonObject& row) {
  if (row.has("statements") && row.raw("statements").is_array()) return;
  row.fail("statements",
           "a list is required: no rules were applied to this row; lab/state of Plimsoll's sources "
           "writes stated rows, lab/validate and lab/fit state and read raw ones");
}

PublishedRun read_row(JsonObject row) {
  check_stated(row);
  PublishedRun run;
  run.id = row.text("id");
  run.use = maybe_text(row, "use");
  JsonObject source = row.object("source");
  run.source = source.text("repo_or_doc") + ", " + source.text("path_or_issue");
  read_hardware(row.object("hardware"), run);
  read_model(row.object("model"), run);
  read_parallel(row.object("parallel"), run);
  if (row.has("layers_per_stage"))
    run.layers_per_stage = row.integers("layers_per_stage", 0, kMostInteger);
  read_batch(row.object("batch"), run);
  if (row.has("dropout")) run.dropout = row.number("dropout", 0, 0.99);
  run.precision_words = row.text("precision");
  run.release = maybe_text(row, "framework_version");
  for (const char* key : {"attention", "kernels"})
    if (row.has(key)) run.kernels.push_back(row.text(key));
  if (run.experts && row.has("moe")) read_routing(row.object("moe"), run);
  if (row.has("needs")) run.needs = row.texts("needs");
  std::optional<CountedAttention> counted;
  if (row.has("stated")) counted = read_stated(row.object("stated"), run);
  read_measured(row, counted, run);
  return run;
}

}  // namespace

std::vector<PublishedRun> parse_published_runs(std::string_view text, const std::string& file) {
  const Json rows = parse_json(text, file);
  if (!rows.is_array())
    throw InputError(file, "", "expected an array of rows, each one published run");
  std::vector<PublishedRun> runs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    runs.push_back(read_row(JsonObject(rows[i], file, "/" + std::to_string(i))));
  }
  return runs;
}

std::vector<PublishedRun> read_published_runs(const std::filesystem::path& path) {
  std::vector<PublishedRun> runs = parse_published_runs(read_file(path.string()), path.string());
  for (PublishedRun& run : runs) run.family = path.stem().string();
  return runs;
}

}  // namespace plimsoll
