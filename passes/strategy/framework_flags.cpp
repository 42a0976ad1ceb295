#include "passes/strategy/framework_flags.h"

#include <algorithm>
#include <span>
#include <vector>

namespace plimsoll {
namespace {

struct Flag {
  /// "KEY=VALUE" or "KEY!=VALUE", all of them where commas join several; "precision" is the job's.
  std::string_view when;
  /// "{KEY}" stands for the value of a field, "{layout}" for layer_split in Megatron-LM's form.
  std::string_view text;
};

/// Megatron-LM megatron/arguments.py and core/optimizer/optimizer_config.py of 2026.
constexpr Flag kMegatron[] = {
    {"rank_order=mp-cp-pp-sharding-dp", "--use-tp-pp-dp-mapping"},
    {"recompute=selective", "--recompute-granularity selective"},
    {"recompute=full", "--recompute-granularity full"},
    {"recompute=full,recompute_layers=0", "--recompute-method uniform --recompute-num-layers 1"},
    {"recompute=full,recompute_layers!=0",
     "--recompute-method block --recompute-num-layers {recompute_layers}"},
    {"layer_split!=even", "--pipeline-model-parallel-layout '{layout}'"},
    {"fp8=delayed", "--fp8-format hybrid --fp8-recipe delayed"},
    {"fp8=current", "--fp8-format hybrid --fp8-recipe tensorwise"},
    {"fp8_parameters=true", "--fp8-param-gather"},
    {"gradient_type=computed,precision=bf16", "--grad-reduce-in-bf16"},
    {"gradient_type=f32,precision=f16", "--accumulate-allreduce-grads-in-fp32"},
    {"main_gradient_type=computed", "--use-precision-aware-optimizer --main-grads-dtype bf16"},
    {"main_parameter_type=f16", "--use-precision-aware-optimizer --main-params-dtype fp16"},
    {"main_parameter_type=remainder", "--use-precision-aware-optimizer"},
    {"moment_type=bf16",
     "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"},
    {"moment_type=f16",
     "--use-precision-aware-optimizer --exp-avg-dtype fp16 --exp-avg-sq-dtype fp16"},
    {"moment_type=fp8",
     "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8"},
};

/// Megatron-LM megatron/arguments.py of 2022.
constexpr Flag kMegatron2022[] = {
    {"recompute=selective", "--recompute-granularity selective"},
    {"recompute=full", "--recompute-granularity full"},
    {"recompute=full,recompute_layers=0", "--recompute-method uniform --recompute-num-layers 1"},
    {"recompute=full,recompute_layers!=0",
     "--recompute-method block --recompute-num-layers {recompute_layers}"},
};

/// Megatron-LM megatron/arguments.py of 2021.
constexpr Flag kMegatron2021[] = {
    {"recompute=full,recompute_layers=0",
     "--activations-checkpoint-method uniform --activations-checkpoint-num-layers 1"},
    {"recompute=full,recompute_layers!=0",
     "--activations-checkpoint-method block --activations-checkpoint-num-layers "
     "{recompute_layers}"},
};

/// torch.distributed.fsdp, ShardingStrategy.
constexpr Flag kFsdp[] = {
    {"sharding_stage=2,dp=1", "ShardingStrategy.SHARD_GRAD_OP"},
    {"sharding_stage=3,dp=1", "ShardingStrategy.FULL_SHARD"},
    {"sharding_stage=2,dp!=1", "ShardingStrategy._HYBRID_SHARD_ZERO2"},
    {"sharding_stage=3,dp!=1", "ShardingStrategy.HYBRID_SHARD"},
};

/// torchtitan torchtitan/config_manager.py of 2025.
constexpr Flag kTorchtitan[] = {
    {"recompute=full,recompute_list=all", "--activation_checkpoint.mode full"},
    {"recompute=full,recompute_list!=all", "--activation_checkpoint.mode selective"},
    {"recompute=per_op",
     "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op"},
    {"fp8=tensorwise", "--model.converters float8"},
    {"fp8=rowwise", "--model.converters float8 --float8.recipe_name rowwise"},
};

struct Named {
  std::string_view framework;
  std::span<const Flag> flags;
};
constexpr Named kFlags[] = {
    {"megatron-lm", kMegatron},          {"megatron-fsdp", kMegatron},
    {"megatron-lm-2022", kMegatron2022}, {"megatron-core-deterministic", kMegatron},
    {"megatron-lm-2021", kMegatron2021}, {"pytorch-fsdp", kFsdp},
    {"torchtitan", kTorchtitan},         {"torchtitan-compiled", kTorchtitan},
    {"torchtitan-async-tp", kTorchtitan}};

std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> found;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    found.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

bool holds(std::string_view when, const Job& job, const Strategy& strategy) {
  const auto conditions = pieces(when, ',');
  return std::all_of(conditions.begin(), conditions.end(), [&](std::string_view condition) {
    const std::size_t equals = condition.find('=');
    const bool differs = condition[equals - 1] == '!';
    const auto key = condition.substr(0, differs ? equals - 1 : equals);
    const std::string value =
        key == "precision" ? std::string(to_text(job.precision)) : field_text(strategy, key);
    return (value == condition.substr(equals + 1)) != differs;
  });
}

/// Embedding, layers and loss of each part of the model: "Et*3|t*4|t*3L" (Megatron-LM
/// megatron/arguments.py, --pipeline-model-parallel-layout).
std::string megatron_layout(const std::vector<std::int64_t>& layers) {
  std::string layout = "E";
  for (std::size_t part = 0; part < layers.size(); ++part) {
    if (part > 0) layout += "|";
    if (layers[part] > 0) layout += "t*" + std::to_string(layers[part]);
  }
  return layout + "L";
}

std::string with_values(std::string text, const Strategy& strategy) {
  const std::size_t begin = text.find('{');
  if (begin == text.npos) return text;
  const std::size_t end = text.find('}', begin);
  const std::string key = text.substr(begin + 1, end - begin - 1);
  const std::string value =
      key == "layout" ? megatron_layout(strategy.layer_split) : field_text(strategy, key);
  return text.replace(begin, end + 1 - begin, value);
}

}  // namespace

std::string framework_flags(const Framework& framework, const Job& job, const Strategy& strategy) {
  const auto named = std::find_if(std::begin(kFlags), std::end(kFlags), [&](const Named& one) {
    return one.framework == framework.name;
  });
  if (named == std::end(kFlags)) return "";
  std::string line;
  for (const Flag& flag : named->flags) {
    if (!holds(flag.when, job, strategy)) continue;
    std::string text = with_values(std::string(flag.text), strategy);
    // A switch that several choices need is named once.
    const std::string first = text.substr(0, text.find(' '));
    const bool known = first.starts_with("--use-") && line.find(first) != line.npos;
    if (known) text.erase(0, first.size() + 1);
    if (!text.empty()) line += (line.empty() ? "" : " ") + text;
  }
  return line;
}

}  // namespace plimsoll
