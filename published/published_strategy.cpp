#include "published/published_strategy.h"

#include <algorithm>
#include <numeric>

#include "passes/strategy/rank_orders.h"
#include "published/published_source.h"

namespace plimsoll {
namespace {

/// Transformer Engine scales by what earlier steps saw, unless the row says "CS" or "current
/// scaling"; so blocks of MXFP8 are taken, whose scales its casts find without another pass;
/// torchtitan by each tensor, or by its rows.
Fp8 fp8_of(const PublishedRun& run) {
  const std::string text = lower_case(run.precision);
  // Tests of Megatron-LM whose name has the recipe: --fp8-recipe tensorwise beside --bf16.
  if (is_megatron_test(run) && contains(run.model, "current_scaling") && contains(run.model, "fp8"))
    return Fp8::current;
  if (!contains(text, "fp8")) return Fp8::none;
  if (contains(text, "rowwise")) return Fp8::rowwise;
  if (is_torchtitan(run)) return Fp8::tensorwise;
  return contains(text, "fp8-cs") || contains(text, "current scaling") ? Fp8::current
                                                                       : Fp8::delayed;
}

std::vector<Recompute> recomputes_of(const PublishedRun& run, const Framework& framework,
                                     const std::optional<bool>& full) {
  const bool scores =
      framework.can.recompute.value.has(Recompute::selective) && !framework.flash_attention;
  const Recompute some = scores ? Recompute::selective : Recompute::none;
  if (run.recompute == "full") return {Recompute::full};
  if (run.recompute == "none" || is_amp(run)) return {Recompute::none};
  // It is of every second layer where the row says so, else by op, as its configurations have it.
  if (is_torchtitan(run) && run.recompute.starts_with("selective"))
    return {contains(run.recompute, "layer") ? Recompute::full : Recompute::per_op};
  if (run.recompute.starts_with("selective"))
    return {framework.name == "pytorch-fsdp" ? Recompute::full : some};
  // Recipes of Megatron's for performance repeat no layers, nor does what follows them; those of
  // FSDP may.
  const bool recipe = is_nemo(run) || is_llama_example(run);
  if (recipe && zero_stage_of(run) < 3) return {some};
  if (full) return {*full ? Recompute::full : some};
  return {some, Recompute::full};
}

/// torchtitan's tables name a looped schedule without the number of its stages: two on each rank.
/// NVIDIA's recipe of Nemotron-4 340B is launched with 12 (dgxc-benchmarking nemotron/launch.sh,
/// VP=12, of 24.11 to 25.05), where its table of 25.04 says "NA" and rows 1.
std::int64_t virtual_stages_of(const PublishedRun& run) {
  const bool recipe = is_nemo(run) && contains(lower_case(run.model), "nemotron4-340b");
  if (recipe && run.pp > 1 && run.virtual_stages.value_or(1) == 1) return 12;
  const bool looped = is_torchtitan(run) && run.pp > 1;
  return std::max<std::int64_t>(1, run.virtual_stages.value_or(looped ? 2 : 1));
}

/// Ranks that share a layer hand a part each on to the next stage, which gathers them: the default
/// of Megatron-LM of 2021 and 2022 (arXiv 2104.04473, section 4.1; megatron/p2p_communication.py,
/// off with --no-scatter-gather-tensors-in-pipeline), and always so in DeepSpeed's pipeline
/// (runtime/pipe/engine.py, is_pipe_partitioned and is_grad_partitioned). Engines of other names
/// are predicted with Megatron-LM's presets, too, and have none.
bool splits_boundary(const PublishedRun& run, const Framework& framework) {
  return contains(lower_case(run.framework), "megatron") &&
         (framework.name == "megatron-lm-2021" || framework.name == "megatron-lm-2022" ||
          is_deepspeed(framework));
}

/// Megatron-LM adds gradients up and reduces them in fp16 where it trains in fp16, unless
/// --accumulate-allreduce-grads-in-fp32 asks for f32, which bf16 always gets
/// (megatron/arguments.py). DeepSpeed, too (runtime/engine.py, communication_data_type), unless its
/// configuration has fp32_allreduce, which a row states. With ZeRO stage 1 it does not scatter
/// them, though: it sums them whole (pull request 1246, issue 5758), in 16 bits as many bytes as a
/// scatter in f32, which is what is predicted. From stage 2 on, which scatters, f32 is all that
/// there is here: twice the bytes of fp16. Of OneFlow's own runs it is assumed: their replicas wait
/// for less than f32 sums would take of their network. NeMo's recipes of speed reduce in bf16
/// (NeMo 1: grad_sync_dtype: bf16, as in dgxc-benchmarking nemotron/nemotron4-340b-synth.yaml and
/// NeMo-Framework-Launcher conf/training; NeMo 2: plugins.grad_reduce_in_fp32 = False in its
/// recipes' performance mode and dgxc-benchmarking llama3.1/pretrain_llama31.py), and so do
/// Bridge's (scripts/performance/configs/llama/llama3_llm_pretrain.py, set_llama3_common_configs).
GradientType gradient_type_of(const PublishedRun& run, const Framework& framework) {
  const std::string name = lower_case(run.framework), precision = lower_case(run.precision);
  const bool engine = contains(name, "megatron") || contains(name, "oneflow");
  const std::int64_t stage = zero_stage_of(run);
  const bool megatron = framework.name == "megatron-lm-2021" ||
                        framework.name == "megatron-lm-2022" || framework.name == "megatron-lm";
  const bool sums = is_deepspeed(framework) ? stage == 0 : megatron && stage < 2;
  const std::string stated = lower_case(run.reduce_dtype);
  const bool usual = is_nemo(run) || is_llama_example(run) ||
                     (precision.starts_with("fp16") && !contains(precision, "fp32 all-reduce"));
  const bool half = stated.empty() ? usual : stated == "fp16" || stated == "bf16";
  return (engine || is_nemo(run)) && sums && half ? GradientType::computed : GradientType::f32;
}

/// NeMo's and Bridge's recipes in FP8 keep and gather such weights in 8 bits (NeMo
/// collections/llm/recipes/precision/mixed_precision.py, fp8_params; Megatron-Bridge
/// training/mixed_precision.py, fp8_param_gather), and so do Megatron-LM's examples of Llama 3.
bool has_fp8_parameters(const PublishedRun& run, const Framework& framework, Fp8 fp8) {
  const bool recipe = is_nemo(run) || is_llama_example(run);
  return recipe && framework.name == "megatron-lm" && zero_stage_of(run) == 1 &&
         run.dp * run.cp > 1 && (fp8 == Fp8::delayed || fp8 == Fp8::current);
}

/// As the row states them; empty where it does not, or where they are not the model's.
std::vector<std::int64_t> stated_split(const PublishedRun& run) {
  std::vector<std::int64_t> split = run.layers_per_stage;
  if (std::ssize(split) != run.pp || run.pp < 2) return {};
  const std::int64_t sum = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  if (sum == *run.layers) return split;
  if (sum != *run.layers + 2) return {};
  --split.front();
  --split.back();
  return split;
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
  strategy.rank_order = rank_orders(framework, strategy, {}).tried.front();
  strategy.sequence_parallel = run.sequence_parallel.value_or(is_nemo(run)) && run.tp > 1;
  strategy.split_boundary =
      splits_boundary(run, framework) && run.tp > 1 && run.pp > 1 && !strategy.sequence_parallel;
  strategy.fp8 = fp8_of(run);
  strategy.fp8_parameters = has_fp8_parameters(run, framework, strategy.fp8);
  strategy.gradient_type = gradient_type_of(run, framework);
  // --decoder-first-pipeline-num-layers 2, --decoder-last-pipeline-num-layers 2
  // (model_config.yaml).
  if (is_megatron_test(run) && contains(run.model, "uneven_pipeline") && run.pp > 2 &&
      (*run.layers - 4) % (run.pp - 2) == 0) {
    strategy.layer_split.assign(std::size_t(run.pp), (*run.layers - 4) / (run.pp - 2));
    strategy.layer_split.front() = strategy.layer_split.back() = 2;
  }
  if (const auto split = stated_split(run); !split.empty()) strategy.layer_split = split;
  if (is_amp(run) && run.pp > 1 && !run.partition.empty())
    strategy.layer_split = layers_of_parts(run).value_or(std::vector<std::int64_t>{});
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
  if (framework.can.recompute.value.has(Recompute::per_op))
    return {repeating(strategy, *run.layers, 2)};
  std::vector<Strategy> choices;
  for (const std::int64_t nth : {4, 3, 2, 1}) {
    choices.push_back(repeating(strategy, *run.layers, nth));
  }
  return choices;
}

}  // namespace

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

std::int64_t zero_stage_of(const PublishedRun& run) {
  if (run.zero_stage) return *run.zero_stage;
  if (is_torchtitan(run)) return run.pp > 1 ? 1 : 3;
  return is_nemo(run) ? 1 : 0;
}

std::optional<std::vector<std::int64_t>> layers_of_parts(const PublishedRun& run) {
  constexpr std::int64_t kBefore = 2, kAfter = 4;
  const std::vector<std::int64_t>& cuts = run.partition;
  const std::int64_t layers = run.layers.value_or(0);
  const bool whole = std::ssize(cuts) == run.pp + 1 && cuts.front() == 0 &&
                     cuts.back() == kBefore + layers + kAfter;
  if (!whole || !std::is_sorted(cuts.begin(), cuts.end())) return std::nullopt;
  const auto layers_before = [&](std::int64_t part) {
    return std::clamp<std::int64_t>(part - kBefore, 0, layers);
  };
  std::vector<std::int64_t> split;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s)
    split.push_back(layers_before(cuts[s + 1]) - layers_before(cuts[s]));
  return split;
}

std::vector<Strategy> strategies_of(const PublishedRun& run, const Framework& framework,
                                    const std::optional<bool>& full) {
  std::vector<Strategy> strategies;
  for (const Recompute recompute : recomputes_of(run, framework, full)) {
    for (const std::int64_t micro_batch : micro_batches_of(run)) {
      Strategy whole = strategy_of(run, framework);
      whole.recompute = recompute;
      whole.micro_batch = micro_batch;
      for (const Strategy& strategy : of_layers(whole, run, framework))
        strategies.push_back(strategy);
    }
  }
  return strategies;
}

}  // namespace plimsoll
