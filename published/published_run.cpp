// Rows of cases files, read into PublishedRun.
#include "published/published_run.h"

#include "base/field_list.h"
#include "base/file.h"
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
constexpr Allowed kInteger(1, kMostInteger), kCount(0, kMostInteger), kNumber(0, 1e30);
constexpr Allowed kBytes(0, 0x1p50), kTime(1e-9, 1e9);

constexpr auto kHardware = [](auto& fields, auto& run) {
  fields.required("gpu", run.gpu);
  fields.optional("interconnect", run.interconnect);
  fields.required("gpus", run.gpus, kInteger);
  fields.optional("gpus_per_node", run.gpus_per_node, kInteger);
};

constexpr auto kLatent = [](auto& fields, auto& latent) {
  fields.optional("q_lora_rank", latent.q_rank, kInteger);
  fields.required("kv_lora_rank", latent.kv_rank, kInteger);
  fields.required("qk_nope_head_dim", latent.nope, kInteger);
  fields.required("qk_rope_head_dim", latent.rope, kInteger);
  fields.required("v_head_dim", latent.value, kInteger);
};

constexpr auto kExperts = [](auto& fields, auto& experts) {
  fields.required("experts", experts.count, {2, kMostInteger});
  fields.required("top_k", experts.chosen, kInteger);
  fields.optional("ffn_hidden", experts.ffn_hidden, kInteger);
  fields.optional("expert_ffn_hidden", experts.ffn_hidden, kInteger);
  fields.optional("shared_expert_ffn_hidden", experts.shared_ffn_hidden, kCount);
  fields.optional("dense_layers", experts.dense_layers, kCount);
  std::int64_t every = 1;
  fields.optional("moe_every", every, kInteger);
  if (every == 1) return;
  experts.pattern.assign(std::size_t(every), false);
  experts.pattern.back() = true;  // the last layer of each group has experts
};

/// How tokens are shared out, and how they travel. Without a word on balance a job's usual load
/// counts.
constexpr auto kRouting = [](auto& fields, auto& run) {
  bool balanced = false;
  fields.optional("capacity_factor", run.experts->capacity, kNumber);
  fields.optional("balanced", balanced);
  if (balanced) run.experts->load = 1;
  fields.optional("load", run.experts->load, kNumber);
  fields.optional("groups", run.experts->groups, kInteger);
  fields.optional("top_groups", run.experts->top_groups, kInteger);
  fields.optional("a2a_overlap", run.overlaps_expert_exchange);
};

constexpr auto kModel = [](auto& fields, auto& run) {
  fields.required("name", run.model);
  fields.optional("hidden", run.hidden, kInteger);
  fields.optional("layers", run.layers, kInteger);
  fields.optional("heads", run.heads, kInteger);
  fields.optional("kv_heads", run.kv_heads, kInteger);
  fields.optional("ffn_hidden", run.ffn_hidden, kInteger);
  fields.optional("vocab", run.vocab, kInteger);
  fields.optional("seq_len", run.sequence, kInteger);
  fields.optional("head_dim", run.head_size, kInteger);
  fields.optional("qk_norm", run.qk_norm);
  fields.optional("mtp_layers", run.predicted_ahead, kCount);
};

constexpr auto kParallel = [](auto& fields, auto& run) {
  fields.optional("tp", run.tp, kInteger);
  fields.optional("pp", run.pp, kInteger);
  fields.optional("dp", run.dp, kInteger);
  fields.optional("cp", run.cp, kInteger);
  fields.optional("ep", run.ep, kInteger);
  fields.optional("etp", run.etp, kInteger);
  fields.optional("vpp", run.virtual_stages, kInteger);
  fields.optional("zero_stage", run.zero_stage, {0, 3});
  fields.optional("zero1_shards", run.shards, kInteger);
  fields.optional("sequence_parallel", run.sequence_parallel);
};

constexpr auto kBatch = [](auto& fields, auto& run) {
  fields.optional("micro", run.micro_batch, kInteger);
  fields.optional("global", run.global_batch, kInteger);
  fields.optional("grad_accum", run.accumulation, kInteger);
};

constexpr auto kMeasured = [](auto& fields, auto& run) {
  fields.optional("step_time_s", run.step_time, kTime);
  fields.optional("memory_allocated_bytes", run.memory_allocated, kBytes);
  fields.optional("memory_reserved_bytes", run.memory_reserved, kBytes);
  fields.optional("memory_device_bytes", run.memory_device, kBytes);
};

/// Keys that the list does not name carry notes of the source.
template <class Value, class List>
void read_part(JsonObject object, Value& value, const List& list) {
  read_listed(object, value, list);
}

void read_model(JsonObject model, PublishedRun& run) {
  read_listed(model, run, kModel);
  if (model.has("experts")) read_listed(model, run.experts.emplace(), kExperts);
  if (model.has("mla")) read_part(model.object("mla"), run.latent.emplace(), kLatent);
}

/// `attention`: the scores that the source counts in a rate of FLOP/s. A step time follows from a
/// rate if the source prints none.
void read_measured(JsonObject& row, std::optional<CountedAttention> attention, PublishedRun& run) {
  JsonObject measured = row.object("measured");
  read_listed(measured, run, kMeasured);
  if (row.has("oom")) run.out_of_memory = row.boolean("oom");
  const bool derived = row.has("derived_step_time_s");
  const Seconds time(derived ? row.number("derived_step_time_s", kTime.least, kTime.most) : 0);
  const bool rated = measured.has("flops_per_s");
  const FlopsPerSecond rate(rated ? measured.number("flops_per_s", kNumber.least, kNumber.most)
                                  : 0);
  if (run.step_time) return;
  if (derived) {
    run.step_time = time;
  } else if (attention && rated) {
    run.step_time = step_time_of(run, rate, *attention);
  }
  run.step_time_derived = run.step_time.has_value();
}

void read_framework(JsonObject& stated, PublishedRun& run) {
  if (!stated.has("framework")) return;
  const std::string name = stated.text("framework");
  const Framework* known = find_framework(name);
  if (known == nullptr) stated.fail("framework", "the frameworks are " + known_frameworks());
  run.framework = *known;
  if (stated.has("framework_fields")) set_fields(stated.object("framework_fields"), *run.framework);
}

/// The modules, each with whether it is repeated.
constexpr auto kModules = [](auto& fields, auto& modules) {
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    bool repeated = false;
    fields.optional(kRecomputedModules[i], repeated);
    if (repeated) modules.add(RecomputedModule(i));
  }
};

constexpr auto kRack = [](auto& fields, auto& rack) {
  fields.required("devices", rack.devices, kInteger);
  fields.required("used_of_several", rack.used_of_several, kInteger);
};

constexpr auto kAdapters = [](auto& fields, auto& adapters) {
  fields.required("rank", adapters.rank, kInteger);
  fields.defaulted("scale", adapters.scale, kNumber);
  fields.defaulted("dropout", adapters.dropout, {0, 0.99});
  fields.required("targets", adapters.targets, kAdapterTargets);
  fields.optional("trained", adapters.trained);
};

constexpr auto kStated = [](auto& fields, auto& run) {
  fields.optional("cluster", run.cluster);
  fields.check(run.cluster.empty() || find_preset(cluster_presets(), run.cluster), "cluster",
               "no cluster preset has that name");
  fields.optional("network_bytes_per_s", run.network_rate, kNumber);
  fields.optional("network", run.network);
  fields.check(run.network.empty() || find_network_kind(run.network) != nullptr, "network",
               "known: {}", known_network_kinds());
  fields.optional("core_speed", run.core_speed, {0.1, 10});
  fields.optional("rack", run.rack, kRack);
  fields.optional("family", run.architecture, kFamilies);
  fields.optional("activation", run.activation, kActivations);
  fields.optional("norm", run.norm, kNorms);
  fields.optional("tied_embeddings", run.tied_embeddings);
  fields.optional("precision", run.precision, kPrecisions);
  fields.optional("pads_vocabulary", run.pads_vocabulary);
  fields.optional("recompute", run.recompute, kStatedRecomputes);
  fields.optional("recompute_every", run.recompute_every, kInteger);
  fields.optional("recompute_modules", run.recompute_modules, kModules);
  fields.optional("fp8", run.fp8, kFp8s);
  fields.optional("fp8_parameters", run.fp8_parameters);
  PrecisionChoices& types = run.chosen.precision;
  fields.optional("gradient_type", types.gradients, kGradientTypes);
  fields.optional("main_gradient_type", types.main_gradients, kGradientTypes);
  fields.optional("main_parameter_type", types.main_parameters, kMasterTypes);
  fields.optional("moment_type", types.moments, kMomentTypes);
  fields.optional("loss_chunks", run.chosen.loss_chunks, kInteger);
  fields.optional("release_gradients", run.chosen.gradients.release);
  fields.optional("offload_optimizer_percent", run.chosen.optimizer.offload_percent, {0, 100});
  fields.optional("offload_parameters", run.chosen.gathers.offload);
  fields.optional("offload_activations_percent", run.chosen.offloaded.percent, {0, 100});
  fields.optional("splits_boundary", run.splits_boundary);
  fields.optional("ends_as_layers", run.ends_as_layers, kInteger);
  fields.optional("schedule", run.schedule, kSchedules);
  fields.optional("shards_within_node", run.shards_within_node);
  fields.optional("clip_norm", run.clip_norm, kNumber);
  fields.optional("adapters", run.adapters, kAdapters);
  fields.optional("frozen_weights", run.frozen_weights, kFrozenWeights);
  fields.optional("memory_of_last_rank", run.memory_of_last_rank);
  fields.optional("needs", run.also_needs);
};

/// Returns how the source counts FLOP/s.
std::optional<CountedAttention> read_stated(JsonObject stated, PublishedRun& run) {
  read_listed(stated, run, kStated);
  if (run.recompute == StatedRecompute::unknown &&
      (!run.recompute_every.empty() || !run.recompute_modules.empty()))
    stated.fail("recompute", "the key is missing; its details are stated");
  if (run.recompute == StatedRecompute::layers && run.recompute_every.empty())
    stated.fail("recompute_every", "recompute of every n-th layer needs n");
  read_framework(stated, run);
  if (stated.has("attributes_of")) {
    const std::string attributes = stated.text("attributes_of");
    const auto preset = find_preset(job_presets(), attributes);
    if (!preset) stated.fail("attributes_of", "no job preset has that name");
    run.attributes = parse_job(*preset, attributes);
  }
  std::optional<CountedAttention> counted;
  if (stated.has("counted_attention"))
    counted = CountedAttention(stated.choice("counted_attention", kCountedAttentions));
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
  if (row.has("use")) run.use = row.text("use");
  JsonObject source = row.object("source");
  run.source = source.text("repo_or_doc") + ", " + source.text("path_or_issue");
  read_part(row.object("hardware"), run, kHardware);
  read_model(row.object("model"), run);
  read_part(row.object("parallel"), run, kParallel);
  if (row.has("layers_per_stage"))
    run.layers_per_stage = row.integers("layers_per_stage", 0, kMostInteger);
  read_part(row.object("batch"), run, kBatch);
  if (row.has("dropout")) run.dropout = row.number("dropout", 0, 0.99);
  run.precision_words = row.text("precision");
  if (row.has("framework_version")) run.release = row.text("framework_version");
  for (const char* key : {"attention", "kernels"})
    if (row.has(key)) run.kernels.push_back(row.text(key));
  if (run.experts && row.has("moe")) read_part(row.object("moe"), run, kRouting);
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
