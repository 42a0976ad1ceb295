#include "published/published_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>

#include "models/presets/presets.h"
#include "published/public_models.h"
#include "published/published_source.h"
#include "published/published_strategy.h"

namespace plimsoll {
namespace {

Cluster preset(std::string_view name) {
  const auto text = find_preset(cluster_presets(), name);
  INVARIANT(text, "a preset of that name");
  return parse_cluster(*text, std::string(name));
}

struct KnownGpu {
  std::string_view gpu;      ///< in the row's words, lower case
  std::string_view network;  ///< in its interconnect; empty: any
  std::string_view cluster;
};
/// The first that matches; networks that measurements depend on come before the usual ones.
constexpr std::array kKnownGpus = {
    KnownGpu{"a100", "Omni-Path", "jean-zay-a100-80gb"},
    KnownGpu{"a100", "8x100 Gb/s", "a100-80gb-800gbit"},
    KnownGpu{"a100-pcie", "", "a100-pcie-80gb"},
    KnownGpu{"a100 pcie", "", "a100-pcie-80gb"},
    KnownGpu{"a100-80", "", "dgx-a100-80gb"},
    KnownGpu{"a100 80", "", "dgx-a100-80gb"},
    KnownGpu{"a100", "", "dgx-a100-40gb"},  // the first that was sold; later ones say 80
    KnownGpu{"gb200 (nvl72)", "", "gb200-nvl72"},
    KnownGpu{"gb200", "", "gb200-nvl4"},
    KnownGpu{"gb300", "", "gb300-nvl72"},
    KnownGpu{"b200", "", "hgx-b200"},
    KnownGpu{"b300", "", "hgx-b300"},
    KnownGpu{"gh200", "", "alps-gh200-96gb"},
    KnownGpu{"h200", "", "hgx-h200"},
    KnownGpu{"h100 96gb", "", "grand-teton-h100-96gb"},
    KnownGpu{"h100", "", "dgx-h100-80gb"},
    KnownGpu{"v100", "Omni-Path", "jean-zay-v100-32gb"},
    KnownGpu{"v100-16", "", "dgx1-v100-16gb"},
    KnownGpu{"v100-sxm2-16", "", "dgx1-v100-16gb"},
    KnownGpu{"v100", "", "dgx1-v100-32gb"},
    KnownGpu{"t4", "", "g4dn-t4"},
};

/// Empty where no preset is of that GPU.
std::string preset_of(const PublishedRun& run) {
  const std::string gpu = lower_case(run.gpu);
  if (gpu.starts_with("unknown")) return "";
  for (const KnownGpu& known : kKnownGpus) {
    if (contains(gpu, known.gpu) && contains(run.interconnect, known.network))
      return std::string(known.cluster);
  }
  return "";
}

/// Devices of a node, which NVLink connects. Racks of 72 are of 18 trays of four, and rows state
/// the trays: one such rack, or several of which 16 trays each are used (Slurm's --segment 16, as
/// the launch scripts of NVIDIA's recipes have it) where the number of devices is a multiple of 64.
std::int64_t devices_per_node(const PublishedRun& run, const Cluster& cluster) {
  constexpr std::int64_t kRack = 72, kUsedOfRack = 64;
  if (cluster.devices_per_node == kRack)
    return run.gpus > kRack && run.gpus % kUsedOfRack == 0 ? kUsedOfRack
                                                           : std::min(kRack, run.gpus);
  return std::min(run.gpus_per_node.value_or(cluster.devices_per_node), run.gpus);
}

Cluster cluster_of(const PublishedRun& run, const std::string& name) {
  Cluster cluster = preset(name);
  const std::int64_t per_node = devices_per_node(run, cluster);
  cluster.devices_per_node = per_node;
  cluster.levels[0].devices = per_node;
  const bool usual = name.starts_with("dgx") || name.starts_with("hgx");
  if (const auto network = stated_network(run.interconnect, run.gpus_per_node.value_or(8));
      network && usual)
    cluster.levels.back().bandwidth = *network;
  return cluster;
}

std::optional<DType> precision_of(const PublishedRun& run) {
  const std::string text = lower_case(run.precision);
  if (contains(text, "fp8")) return DType::bf16;  // of everything but the layers' products
  if (text.starts_with("bf16")) return DType::bf16;
  if (text.starts_with("fp16")) return DType::f16;
  if (text.starts_with("fp32")) return DType::f32;
  if (text.starts_with("unknown")) return DType::bf16;
  return std::nullopt;
}

/// Vocabulary: stated, or known of a public model.
std::optional<std::int64_t> vocabulary_of(const PublishedRun& run) {
  return run.vocab ? run.vocab : public_vocabulary(run.model);
}

/// Megatron-LM and what is built on it pad it. Not in vTrain's runs within a node without tensor
/// parallelism: their times are sums of times of single layers and of a head, not of whole steps
/// (to 0.02 ms they are linear in the number of layers), and that head's rows are not padded.
bool pads_vocabulary(const PublishedRun& run, bool across_nodes) {
  const bool megatron = contains(lower_case(run.framework), "megatron") || is_nemo(run);
  return megatron && (across_nodes || run.tp > 1 || !contains(run.source, "vTrain"));
}

/// Public models with three matrices in a layer's MLP.
bool is_gated(std::string_view name) {
  static constexpr std::array kGated = {"llama", "mistral", "mixtral",  "vicuna",   "qwen",
                                        "gemma", "olmo",    "baichuan", "internlm", "deepseek"};
  return std::any_of(kGated.begin(), kGated.end(),
                     [&](std::string_view known) { return contains(name, known); });
}

/// Squared ReLU stands for the whole architecture that it came with in published models: Parmar et
/// al. 2024, arXiv 2402.16819, section 2.
bool has_squared_relu(const PublishedRun& run) { return run.activation == "squared-relu"; }

Family family_of(const PublishedRun& run) {
  const std::string name = lower_case(run.model);
  if (contains(name, "bert")) return Family::bert;
  if (has_squared_relu(run)) return Family::llama;
  return run.gated_ffn.value_or(is_gated(name)) ? Family::llama : Family::gpt;
}

/// The need of a predictor of this kind that a row does not meet; empty: all is there.
std::string missing_of(const PublishedRun& run) {
  for (const std::string& need : run.needs) {
    // Both ways to run are predicted where a row does not say whether layers were repeated.
    const bool known =
        (need == "vocabulary unknown" && vocabulary_of(run)) || need == "recompute unknown";
    if (need != "fp8" && need != "cp" && !known) return need;
  }
  if (!run.hidden || !run.layers || !run.heads) return "model size";
  if (!vocabulary_of(run)) return "vocabulary";
  if (!run.sequence) return "sequence";
  if (contains(lower_case(run.model), "t5")) return "encoder-decoder";
  if (!run.finetuning.empty()) return "finetuning";
  if (!precision_of(run)) return "precision " + run.precision;
  // XLA fuses what PyTorch runs op by op, and no preset is of it.
  if (contains(lower_case(run.framework), "jax")) return "framework " + run.framework;
  if (is_amp(run) && !run.partition.empty() && !layers_of_parts(run))
    return "partition: a cut of the model's parts into pp stages";
  return "";
}

Job job_of(const PublishedRun& run, std::int64_t global_batch) {
  Job job;
  job.name = "published";
  job.family = family_of(run);
  if (has_squared_relu(run)) {
    job.activation = Activation::squared_relu;
    job.norm = NormKind::layer_norm;
  }
  job.layers = *run.layers;
  job.hidden = *run.hidden;
  job.heads = *run.heads;
  job.kv_heads = run.kv_heads.value_or(job.heads);
  job.ffn_hidden = run.ffn_hidden.value_or(4 * job.hidden);
  job.vocab = *vocabulary_of(run);
  job.sequence = *run.sequence;
  job.global_batch = global_batch;
  job.precision = *precision_of(run);
  job.tied_embeddings = run.tied_embeddings.value_or(job.family != Family::llama ||
                                                     contains(lower_case(run.model), "gemma"));
  if (job.precision == DType::f16) job.loss_scale = LossScale{};
  return job;
}

std::string framework_of(const PublishedRun& run) {
  const std::string name = lower_case(run.framework);
  // Megatron-DeepSpeed has Megatron-LM's own training loop, too. vTrain's runs state no ZeRO stage
  // and are predicted with that: chosen by looking at these runs
  // (docs/how-it-works/published-runs.md).
  const bool own_loop = contains(run.source, "VIA-Research/vTrain") && !run.zero_stage;
  if (is_amp(run)) return "megatron-deepspeed-2020";
  if (contains(name, "deepspeed") && !own_loop) return "megatron-deepspeed";
  if (contains(name, "paddle")) return "paddle-2.2";
  if (is_deterministic(run)) return "megatron-core-deterministic";
  if (is_torchtitan(run)) {
    if (run.async_tp.value_or(false)) return "torchtitan-async-tp";
    return run.compiled.value_or(false) ? "torchtitan-compiled" : "torchtitan";
  }
  if (name == "pytorch" && run.attention == "unfused") return "pytorch-autocast";
  if (contains(name, "fsdp") || name == "pytorch") return "pytorch-fsdp";
  // A framework that shards gradients or parameters, and is no Megatron, is taken for it.
  if (run.zero_stage.value_or(0) > 1 && !contains(name, "megatron") && !is_nemo(run) &&
      name != "alpa")
    return "pytorch-fsdp";
  if (run.attention == "flash" || contains(name, "core") || is_nemo(run) ||
      run.framework_version.starts_with("2024"))
    return "megatron-lm";
  // All runs of that paper are of the code it describes, those without its two ideas, too.
  const bool of_2022 = contains(run.source, "2205.05198");
  if (of_2022 || run.recompute == "selective" || run.sequence_parallel.value_or(false) ||
      run.zero_stage.value_or(0) > 0)
    return "megatron-lm-2022";
  return "megatron-lm-2021";
}

/// Workspaces of cuBLAS are larger from Hopper on: PyTorch's own (aten/src/ATen/cuda/
/// CublasHandlePool.cpp: 32 MiB instead of 8 MiB and 128 KiB, on Blackwell in later versions only),
/// one for each of two handles, unless CUBLAS_WORKSPACE_CONFIG :4096:8 says 32 MiB, and that of
/// Transformer Engine (pytorch/module/base.py: 32 MiB instead of 4 MiB).
Bytes workspace_on(const PublishedRun& run, const Framework& framework) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  const std::string gpu = lower_case(run.gpu);
  const bool hopper = contains(gpu, "h100") || contains(gpu, "h200") || contains(gpu, "b200") ||
                      contains(gpu, "b300");
  const bool engine = framework.name == "megatron-lm" || is_deterministic(run);
  const Bytes usual{hopper || is_deterministic(run) ? 32 * kMiB : 8 * kMiB + kMiB / 8};
  const Bytes handle = run.handle_workspace.value_or(usual);
  return 2 * handle + Bytes(engine ? (hopper ? 32 : 4) * kMiB : 0);
}

}  // namespace

std::optional<BytesPerSecond> stated_network(std::string_view interconnect,
                                             std::int64_t devices_per_node) {
  static const std::regex rate(R"((?:(\d+)\s?x\s?[A-Za-z ]{0,12})?(\d+)\s?Gb(?:/s|ps))");
  std::match_results<std::string_view::const_iterator> found;
  if (!std::regex_search(interconnect.begin(), interconnect.end(), found, rate))
    return std::nullopt;
  double gigabits = std::stod(found[2].str());
  if (found[1].matched) gigabits *= std::stod(found[1].str());
  const bool per_device = contains(interconnect, "per GPU");
  return BytesPerSecond(gigabits * 1e9 / 8 / double(per_device ? 1 : devices_per_node));
}

PublishedTarget published_target(const PublishedRun& run, const CalibrationChoice& calibration,
                                 const AssumedRecompute& assumed) {
  PublishedTarget target;
  target.missing = missing_of(run);
  if (!target.missing.empty()) return target;
  const std::string preset = preset_of(run);
  if (preset.empty()) {
    target.missing = "gpu " + run.gpu;
    return target;
  }
  target.devices = run.gpus;
  target.cluster = cluster_of(run, preset);
  target.framework = framework_by_name(framework_of(run));
  // It ran so: Megatron FSDP, what Alpa's compiler calls zero_2 and zero_3, engines without a
  // preset of their own.
  for (auto* stages :
       {&target.framework.can.sharding_stages, &target.framework.can.pipeline_sharding_stages})
    stages->value.add(zero_stage_of(run));
  if (is_deepspeed(target.framework) && run.attention == "flash")
    target.framework.flash_attention = true;
  target.framework.async_tensor_parallel |=
      run.overlap_tensor_parallel.value_or(is_bridge(run)) && run.tp > 1;
  if (is_deep_learning_examples(run)) {
    target.framework.separate_qkv = target.framework.fused_bias = true;
    target.framework.fused_bias_add = target.framework.masks_f32_apart = false;
  }
  // Their loss is vocab_parallel_cross_entropy, which works in place.
  if (is_megatron_test(run)) target.framework.loss_memory = LossMemory::in_place;
  if (run.loss_memory) target.framework.loss_memory = *run.loss_memory;
  if (is_deterministic(run)) target.framework.flash_attention = !keeps_scores(run);
  target.framework.workspace = workspace_on(run, target.framework);
  target.framework.host_optimizer = run.host_optimizer;
  target.framework.host_parameters = run.host_parameters;
  target.framework.checkpoint_memory = run.checkpoints;
  try {
    const std::string document = document_of(run.source);
    CostBasis basis = cost_basis(target.cluster, target.framework, calibration, preset,
                                 calibration.leave_out_source ? document : "");
    target.source_known = basis.fitted && has_runs_of(*basis.fitted, document);
    target.cluster = std::move(basis.cluster);
    target.framework = std::move(basis.framework);
    target.measured = std::move(basis.measured);
    target.fitted = std::move(basis.fitted);
    target.calibration = basis.name;
  } catch (const InputError& error) {
    target.missing = error.what();
    return target;
  }
  std::int64_t global = run.global_batch.value_or(0);
  if (global == 0 && run.accumulation && run.micro_batch)
    global = micro_batches_of(run).front() * run.dp * *run.accumulation;
  // One GPU that says nothing of accumulation has none.
  if (global == 0 && run.micro_batch && run.gpus == 1) global = *run.micro_batch;
  // The least batch of a run that was out of memory says whether that could be otherwise.
  if (global == 0 && run.out_of_memory) global = run.dp;
  if (global == 0) {
    target.missing = "global batch";
    return target;
  }
  target.job = job_of(run, global);
  const bool across_nodes = target.devices > target.cluster.devices_per_node;
  if (pads_vocabulary(run, across_nodes))
    target.job.vocab = padded_vocabulary(target.job.vocab, target.framework, run.tp);
  target.memory_of_last_rank = is_megatron_test(run);
  // The default of --hidden-dropout and --attention-dropout, in its authors' tables; what others
  // measured it at (its name with a commit, say) they set themselves and rarely state.
  const bool deepspeed =
      is_deepspeed(target.framework) && contains(lower_case(run.framework), "megatron");
  const bool own_tables =
      lower_case(run.framework) == "megatron-lm" && !target.framework.flash_attention;
  // hidden_dropout_prob and attention_probs_dropout_prob of BERT's configuration.
  const bool bert =
      (target.framework.name == "pytorch-autocast" || is_deep_learning_examples(run)) &&
      target.job.family == Family::bert;
  // NeMo-Framework-Launcher launcher_scripts/conf/training/gpt3/*.yaml; its others have none.
  const bool nemo_gpt3 = is_nemo(run) && lower_case(run.model).starts_with("gpt3");
  const bool usual = is_megatron_test(run) || deepspeed || own_tables || bert || nemo_gpt3;
  target.job.dropout = run.dropout.value_or(usual ? 0.1 : 0);
  try {
    check_job(target.job, run.id);
  } catch (const InputError& error) {
    target.missing = error.what();
    return target;
  }
  const AssumedRecompute& known = target.fitted ? target.fitted->assumed_recompute : assumed;
  const std::optional<bool>& full = across_nodes ? known.across_nodes : known.within_node;
  for (const Strategy& strategy : strategies_of(run, target.framework, full)) {
    Verdict verdict = legal(target.job, strategy, target.devices);
    if (verdict) verdict = legal(target.framework, target.job, strategy);
    if (verdict) {
      target.strategies.push_back(strategy);
    } else if (target.missing.empty()) {
      target.missing = verdict.reason();
    }
  }
  if (!target.strategies.empty()) target.missing.clear();
  return target;
}

}  // namespace plimsoll
