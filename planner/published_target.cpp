#include "planner/published_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>

#include "models/presets.h"
#include "planner/public_models.h"
#include "planner/typical_calibration.h"

namespace plimsoll {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

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
    KnownGpu{"gb200", "", "gb200-nvl4"},
    KnownGpu{"b200", "", "hgx-b200"},
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
  const std::string gpu = lower(run.gpu);
  if (gpu.starts_with("unknown")) return "";
  for (const KnownGpu& known : kKnownGpus) {
    if (contains(gpu, known.gpu) && contains(run.interconnect, known.network))
      return std::string(known.cluster);
  }
  return "";
}

Cluster cluster_of(const PublishedRun& run, const std::string& name) {
  Cluster cluster = preset(name);
  const std::int64_t per_node =
      std::min(run.gpus_per_node.value_or(cluster.devices_per_node), run.gpus);
  cluster.devices_per_node = per_node;
  cluster.levels[0].devices = per_node;
  const bool usual = name.starts_with("dgx") || name.starts_with("hgx");
  if (const auto network = stated_network(run.interconnect, run.gpus_per_node.value_or(8));
      network && usual)
    cluster.levels.back().bandwidth = *network;
  return cluster;
}

std::optional<FittedCalibration> calibration_of(const std::string& cluster,
                                                const std::string& framework) {
  const std::string name = cluster + "--" + framework;
  const auto text = find_preset(calibration_presets(), name);
  if (!text) return std::nullopt;
  return parse_fitted_calibration(*text, name);
}

std::optional<DType> precision_of(const PublishedRun& run) {
  const std::string text = lower(run.precision);
  if (contains(text, "fp8")) return DType::bf16;  // of everything but the layers' products
  if (text.starts_with("bf16")) return DType::bf16;
  if (text.starts_with("fp16")) return DType::f16;
  if (text.starts_with("fp32")) return DType::f32;
  if (text.starts_with("unknown")) return DType::bf16;
  return std::nullopt;
}

bool is_torchtitan(const PublishedRun& run) { return contains(lower(run.framework), "torchtitan"); }

/// Tests of Megatron-LM itself: they leave dropout at its default.
bool is_megatron_test(const PublishedRun& run) {
  return contains(run.source, "tests/functional_tests");
}

/// Most of them switch off what is not deterministic (--deterministic-mode,
/// --no-gradient-accumulation-fusion); those of context parallelism and weekly ones do not (their
/// model_config.yaml).
bool is_deterministic(const PublishedRun& run) {
  return is_megatron_test(run) && run.attention != "flash" && run.cp == 1 &&
         !contains(run.model, "weekly") && !contains(run.model, "nondeterministic");
}

/// Of those, the ones of memory and speed (gpt3_7b_*_memory_speed) have no --attention-backend
/// unfused: Transformer Engine takes flash attention.
bool keeps_scores(const PublishedRun& run) {
  return is_deterministic(run) &&
         (run.attention == "unfused" || !contains(run.model, "memory_speed"));
}

/// Vocabulary: stated, or known of a public model.
std::optional<std::int64_t> vocabulary_of(const PublishedRun& run) {
  return run.vocab ? run.vocab : public_vocabulary(run.model);
}

/// Transformer Engine scales by what earlier steps saw, unless the row says "CS" (current scaling);
/// torchtitan by each tensor, or by its rows.
Fp8 fp8_of(const PublishedRun& run) {
  const std::string text = lower(run.precision);
  // Tests of Megatron-LM whose name has the recipe: --fp8-recipe tensorwise beside --bf16.
  if (is_megatron_test(run) && contains(run.model, "current_scaling") && contains(run.model, "fp8"))
    return Fp8::current;
  if (!contains(text, "fp8")) return Fp8::none;
  if (contains(text, "rowwise")) return Fp8::rowwise;
  if (is_torchtitan(run)) return Fp8::tensorwise;
  return contains(text, "fp8-cs") ? Fp8::current : Fp8::delayed;
}

/// NeMo and its successor: Megatron-LM with the switches of their recipes.
bool is_nemo(const PublishedRun& run) {
  const std::string name = lower(run.framework);
  return contains(name, "nemo") || contains(name, "bridge");
}

/// Megatron-LM and what is built on it pad it. Not in vTrain's runs within a node without tensor
/// parallelism: their times are sums of times of single layers and of a head, not of whole steps
/// (to 0.02 ms they are linear in the number of layers), and that head's rows are not padded.
bool pads_vocabulary(const PublishedRun& run, bool across_nodes) {
  const bool megatron = contains(lower(run.framework), "megatron") || is_nemo(run);
  return megatron && (across_nodes || run.tp > 1 || !contains(run.source, "vTrain"));
}

/// Public models with three matrices in a layer's MLP.
bool is_gated(std::string_view name) {
  static constexpr std::array kGated = {"llama", "mistral", "mixtral",  "vicuna",   "qwen",
                                        "gemma", "olmo",    "baichuan", "internlm", "deepseek"};
  return std::any_of(kGated.begin(), kGated.end(),
                     [&](std::string_view known) { return contains(name, known); });
}

Family family_of(const PublishedRun& run) {
  const std::string name = lower(run.model);
  if (contains(name, "bert")) return Family::bert;
  return run.gated_ffn.value_or(is_gated(name)) ? Family::llama : Family::gpt;
}

/// What a predictor of this kind needs of a row; empty: all there.
std::string missing_of(const PublishedRun& run) {
  for (const std::string& need : run.needs) {
    const bool known = need == "vocabulary unknown" && vocabulary_of(run);
    if (need != "fp8" && need != "cp" && !known) return need;
  }
  if (!run.hidden || !run.layers || !run.heads) return "model size";
  if (!vocabulary_of(run)) return "vocabulary";
  if (!run.sequence) return "sequence";
  if (contains(lower(run.model), "t5")) return "encoder-decoder";
  if (!run.finetuning.empty()) return "finetuning";
  if (!precision_of(run)) return "precision " + run.precision;
  return "";
}

Job job_of(const PublishedRun& run, std::int64_t global_batch) {
  Job job;
  job.name = "published";
  job.family = family_of(run);
  job.layers = *run.layers;
  job.hidden = *run.hidden;
  job.heads = *run.heads;
  job.kv_heads = run.kv_heads.value_or(job.heads);
  job.ffn_hidden = run.ffn_hidden.value_or(4 * job.hidden);
  job.vocab = *vocabulary_of(run);
  job.sequence = *run.sequence;
  job.global_batch = global_batch;
  job.precision = *precision_of(run);
  job.tied_embeddings = job.family != Family::llama || contains(lower(run.model), "gemma");
  if (job.precision == DType::f16) job.loss_scale = LossScale{};
  return job;
}

std::string framework_of(const PublishedRun& run) {
  const std::string name = lower(run.framework);
  // Without a ZeRO stage DeepSpeed's engine is not known to run, and Megatron-LM's own exchanges
  // between stages fit such runs (docs/accuracy.md).
  if (contains(name, "deepspeed") && run.zero_stage) return "megatron-deepspeed";
  if (contains(name, "paddle")) return "paddle-2.2";
  if (is_deterministic(run)) return "megatron-core-deterministic";
  if (is_torchtitan(run)) {
    if (run.async_tp.value_or(false)) return "torchtitan-async-tp";
    return run.compiled.value_or(false) ? "torchtitan-compiled" : "torchtitan";
  }
  if (name == "pytorch" && run.attention == "unfused") return "pytorch-autocast";
  if (contains(name, "fsdp") || name == "pytorch") return "pytorch-fsdp";
  // What shards gradients or parameters, and is no Megatron, is taken for it.
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
/// CublasHandlePool.cpp: 32 MiB instead of 8 MiB and 128 KiB), one for each of two handles, unless
/// CUBLAS_WORKSPACE_CONFIG :4096:8 says 32 MiB, and that of Transformer Engine
/// (pytorch/module/base.py: 32 MiB instead of 4 MiB).
Bytes workspace_on(const PublishedRun& run, const Framework& framework) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  const std::string gpu = lower(run.gpu);
  const bool hopper = contains(gpu, "h100") || contains(gpu, "h200") || contains(gpu, "b200");
  const bool engine = framework.name == "megatron-lm" || is_deterministic(run);
  const Bytes handle{hopper || is_deterministic(run) ? 32 * kMiB : 8 * kMiB + kMiB / 8};
  return 2 * handle + Bytes(engine ? (hopper ? 32 : 4) * kMiB : 0);
}

std::vector<Recompute> recomputes_of(const PublishedRun& run, const Framework& framework,
                                     const std::optional<bool>& full) {
  const Recompute some = framework.selective_recompute && !framework.flash_attention
                             ? Recompute::selective
                             : Recompute::none;
  if (run.recompute == "full") return {Recompute::full};
  if (run.recompute == "none") return {Recompute::none};
  // Of every second layer where the row says so, else by op, as its configurations have it.
  if (is_torchtitan(run) && run.recompute.starts_with("selective"))
    return {contains(run.recompute, "layer") ? Recompute::full : Recompute::per_op};
  if (run.recompute.starts_with("selective"))
    return {framework.name == "pytorch-fsdp" ? Recompute::full : some};
  if (is_nemo(run)) return {some};  // its recipes for performance repeat no layers
  if (full) return {*full ? Recompute::full : some};
  return {some, Recompute::full};
}

/// torchtitan's tables name a looped schedule without the number of its stages: two on each rank.
std::int64_t virtual_stages_of(const PublishedRun& run) {
  const bool looped = is_torchtitan(run) && run.pp > 1;
  return std::max<std::int64_t>(1, run.virtual_stages.value_or(looped ? 2 : 1));
}

std::vector<std::int64_t> micro_batches_of(const PublishedRun& run) {
  // torchtitan's local batch is cut into as many micro-batches as there are ranks in the pipeline
  // (pipeline_parallel_microbatches, whose default is the degree).
  if (run.micro_batch && is_torchtitan(run) && *run.micro_batch % run.pp == 0)
    return {*run.micro_batch / run.pp};
  if (run.micro_batch) return {*run.micro_batch};
  if (run.global_batch && run.accumulation && *run.accumulation > 0)
    return {*run.global_batch / (run.dp * *run.accumulation)};
  return {1, 2, 4, 8, 16};
}

/// torchtitan's stages of a pipeline keep parameters and gradients whole until the last micro-batch
/// (fully_shard with reshard_after_forward = not pp_enabled, parallelize_llama.py;
/// set_requires_gradient_sync(False) before, torch/distributed/pipelining/stage.py).
std::int64_t zero_stage_of(const PublishedRun& run) {
  if (run.zero_stage) return *run.zero_stage;
  if (is_torchtitan(run)) return run.pp > 1 ? 1 : 3;
  return is_nemo(run) ? 1 : 0;
}

/// Ranks that share a layer hand a part each on to the next stage, which gathers them: the default
/// of Megatron-LM of 2021 and 2022 (arXiv 2104.04473, section 4.1; megatron/p2p_communication.py,
/// off with --no-scatter-gather-tensors-in-pipeline), and of Megatron-DeepSpeed without ZeRO, which
/// has its pipeline. Engines of other names are predicted with its presets, too, and have none.
bool splits_boundary(const PublishedRun& run, const Framework& framework) {
  return contains(lower(run.framework), "megatron") &&
         (framework.name == "megatron-lm-2021" || framework.name == "megatron-lm-2022");
}

/// Megatron-LM adds gradients up and reduces them in fp16 where it trains in fp16, unless
/// --accumulate-allreduce-grads-in-fp32 asks for f32, which bf16 always gets
/// (megatron/arguments.py). DeepSpeed without ZeRO, too (runtime/engine.py,
/// communication_data_type), unless its configuration has fp32_allreduce, which a row states. Of
/// OneFlow's own runs it is assumed: their replicas wait for less than f32 sums would take of their
/// network.
GradientType gradient_type_of(const PublishedRun& run, const Framework& framework) {
  const std::string name = lower(run.framework), precision = lower(run.precision);
  const bool engine = contains(name, "megatron") || contains(name, "oneflow");
  const bool older = framework.name == "megatron-lm-2021" || framework.name == "megatron-lm-2022";
  const std::string stated = lower(run.reduce_dtype);
  const bool half = stated.empty()
                        ? precision.starts_with("fp16") && !contains(precision, "fp32 all-reduce")
                        : stated == "fp16" || stated == "bf16";
  return engine && older && half && zero_stage_of(run) < 2 ? GradientType::computed
                                                           : GradientType::f32;
}

Strategy strategy_of(const PublishedRun& run, const Framework& framework) {
  Strategy strategy;
  strategy.mp = run.tp;
  strategy.pp = run.pp;
  strategy.virtual_stages = virtual_stages_of(run);
  // NeMo's recipes have the distributed optimizer, and split tokens wherever they split layers
  // (nemo/collections/llm/recipes: MegatronOptimizerModule with use_distributed_optimizer,
  // sequence_parallel with tensor_model_parallel_size > 1).
  const std::int64_t stage = zero_stage_of(run);
  strategy.cp = run.cp;
  const std::int64_t per_node = run.gpus_per_node.value_or(8);
  if (stage > 0 && run.dp * run.cp > 1) {
    strategy.sharding_degree = run.dp;
    strategy.sharding_stage = stage;
    if (run.sharding == "HSDP" && run.dp % per_node == 0) {
      strategy.sharding_degree = per_node;
      strategy.dp = run.dp / per_node;
    }
  } else {
    strategy.dp = run.dp;
  }
  strategy.sequence_parallel = run.sequence_parallel.value_or(is_nemo(run)) && run.tp > 1;
  strategy.split_boundary =
      splits_boundary(run, framework) && run.tp > 1 && run.pp > 1 && !strategy.sequence_parallel;
  strategy.fp8 = fp8_of(run);
  strategy.gradient_type = gradient_type_of(run, framework);
  // --decoder-first-pipeline-num-layers 2, --decoder-last-pipeline-num-layers 2
  // (model_config.yaml).
  if (is_megatron_test(run) && contains(run.model, "uneven_pipeline") && run.pp > 2 &&
      (*run.layers - 4) % (run.pp - 2) == 0) {
    strategy.layer_split.assign(std::size_t(run.pp), (*run.layers - 4) / (run.pp - 2));
    strategy.layer_split.front() = strategy.layer_split.back() = 2;
  }
  return strategy;
}

/// Selective recompute of FSDP repeats every n-th layer.
Strategy repeating(Strategy strategy, std::int64_t layers, std::int64_t nth) {
  strategy.recompute = Recompute::full;
  for (std::int64_t layer = 0; layer < layers; layer += nth)
    strategy.recompute_list.push_back(layer);
  return strategy;
}

/// The layers that a row means, as strategies that repeat them: torchtitan's selective recompute by
/// layer repeats every second; what FSDP runs that only say "selective" repeat is not stated.
std::vector<Strategy> of_layers(const Strategy& strategy, const PublishedRun& run,
                                const Framework& framework) {
  const bool selective = run.recompute.starts_with("selective");
  if (strategy.recompute != Recompute::full || !selective) return {strategy};
  if (framework.per_op_recompute) return {repeating(strategy, *run.layers, 2)};
  std::vector<Strategy> choices;
  for (const std::int64_t nth : {4, 3, 2, 1}) {
    choices.push_back(repeating(strategy, *run.layers, nth));
  }
  return choices;
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

std::string calibrated_as(const Framework& framework) {
  return framework.name.starts_with("torchtitan") ? "torchtitan" : framework.name;
}

PublishedTarget published_target(const PublishedRun& run, CalibratedWith calibrated,
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
  target.framework.most_sharding_stage =
      std::max(target.framework.most_sharding_stage, zero_stage_of(run));
  if (target.framework.name == "megatron-deepspeed" && run.attention == "flash")
    target.framework.flash_attention = true;
  // Their loss is vocab_parallel_cross_entropy, which works in place.
  if (is_megatron_test(run)) target.framework.loss_memory = LossMemory::in_place;
  if (is_deterministic(run)) target.framework.flash_attention = !keeps_scores(run);
  target.framework.workspace = workspace_on(run, target.framework);
  target.framework.host_optimizer = run.host_optimizer;
  target.framework.host_parameters = run.host_parameters;
  target.framework.checkpoint_memory = run.checkpoints;
  if (calibrated == CalibratedWith::built_in)
    target.fitted = calibration_of(preset, calibrated_as(target.framework));
  if (calibrated != CalibratedWith::nothing && !target.fitted)
    target.fitted = typical_calibration(target.cluster, target.framework);
  if (target.fitted) apply(*target.fitted, target.cluster, target.framework);
  const std::vector<std::int64_t> micro_batches = micro_batches_of(run);
  std::int64_t global = run.global_batch.value_or(0);
  if (global == 0 && run.accumulation && run.micro_batch)
    global = micro_batches.front() * run.dp * *run.accumulation;
  // One GPU that says nothing of accumulation has none.
  if (global == 0 && run.micro_batch && run.gpus == 1) global = *run.micro_batch;
  // Of a run that was out of memory the least batch says whether that could be otherwise.
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
      target.framework.name == "megatron-deepspeed" && contains(lower(run.framework), "megatron");
  const bool own_tables =
      lower(run.framework) == "megatron-lm" && !target.framework.flash_attention;
  // hidden_dropout_prob and attention_probs_dropout_prob of BERT's configuration.
  const bool bert =
      target.framework.name == "pytorch-autocast" && target.job.family == Family::bert;
  // NeMo-Framework-Launcher launcher_scripts/conf/training/gpt3/*.yaml; its others have none.
  const bool nemo_gpt3 = is_nemo(run) && lower(run.model).starts_with("gpt3");
  if (is_megatron_test(run) || deepspeed || own_tables || bert || nemo_gpt3)
    target.job.dropout = 0.1;
  try {
    check_job(target.job, run.id);
  } catch (const InputError& error) {
    target.missing = error.what();
    return target;
  }
  const AssumedRecompute& known = target.fitted ? target.fitted->assumed_recompute : assumed;
  const std::optional<bool>& full = across_nodes ? known.across_nodes : known.within_node;
  for (const Recompute recompute : recomputes_of(run, target.framework, full)) {
    for (const std::int64_t micro_batch : micro_batches) {
      Strategy whole = strategy_of(run, target.framework);
      whole.recompute = recompute;
      whole.micro_batch = micro_batch;
      for (const Strategy& strategy : of_layers(whole, run, target.framework)) {
        Verdict verdict = legal(target.job, strategy, target.devices);
        if (verdict) verdict = legal(target.framework, strategy);
        if (verdict) {
          target.strategies.push_back(strategy);
        } else if (target.missing.empty()) {
          target.missing = verdict.reason();
        }
      }
    }
  }
  if (!target.strategies.empty()) target.missing.clear();
  return target;
}

}  // namespace plimsoll
