// Rules about types, apart from those about degrees and schedules in strategy.cpp.
#include "passes/strategy/precision_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "passes/strategy/pipeline_order.h"

namespace plimsoll {
namespace {

/// Fused buffers hold the gradients of one micro-batch, all of them.
Verdict merge_is_legal(const Strategy& strategy) {
  if (strategy.gradients.merge != GradientMerge::fused) return Verdict::yes();
  if (strategy.pipeline.virtual_stages > 1 || splits_backward(strategy.schedule)) {
    return Verdict::no(
        "gradient_merge is fused: its buffers hold one micro-batch; with virtual_stages and split "
        "backwards several are under way");
  }
  if (strategy.sharding_stage > 1 ||
      strategy.gradients.reduction == GradReduction::per_micro_batch) {
    return Verdict::no(
        "gradient_merge is fused: sharding stages 2 and 3 and grad_reduction per_micro_batch "
        "reduce what each micro-batch gives before it is merged");
  }
  return Verdict::yes();
}

Verdict gradient_type_is_legal(const Job& job, const Strategy& strategy) {
  if (strategy.precision.gradients == GradientType::f32) return Verdict::yes();
  if (job.precision == DType::f32)
    return Verdict::no("gradient_type is computed; that goes with a job in bf16 or fp16, not fp32");
  if (!job.fp32_parameters.empty() && strategy.gradients.merge == GradientMerge::direct) {
    return Verdict::no(
        "gradient_type is computed; kernels give gradients of fp32_parameters in f32, so that "
        "gradient_merge must be tensor or fused");
  }
  return Verdict::yes();
}

/// Nothing reads all gradients at once, and one update reads each of them: the computed ones, of
/// one type, in one range of the arenas for each layer.
Verdict release_is_legal(const Job& job, const Strategy& strategy) {
  if (!strategy.gradients.release) return Verdict::yes();
  const auto no = [](std::string_view why) {
    return Verdict::no(fmt::format("release_gradients: {}", why));
  };
  if (job.clip_norm > 0)
    return no(fmt::format("clip_norm is {}; the norm is of all gradients at once", job.clip_norm));
  if (job.loss_scale) return no("whether a step counts with loss_scale depends on all gradients");
  if (job.optimizer.kind != OptimizerKind::adamw) return no("the optimizer must be adamw");
  if (const std::int64_t m = micro_batches(job, strategy); m > 1)
    return no(fmt::format("gradients of {} micro-batches are added up; there must be 1", m));
  if (strategy.pp > 1) return no(fmt::format("pp is {}; it must be 1", strategy.pp));
  if (strategy.sharding_stage == 1)
    return no("sharding_stage is 1, which keeps all gradients; it must be 0, 2 or 3");
  if (strategy.owners.sharding_owner != ShardingOwner::elements)
    return no("sharding_owner must be elements");
  if (experts_apart(strategy))
    return no("ep and etp: whether rows of experts had memory is known behind backward");
  if (strategy.optimizer.offload_percent > 0)
    return no("offload_optimizer_percent must be 0: the host updates once per step");
  if (strategy.optimizer.flatten != Flatten::fused ||
      strategy.optimizer.cast_placement != CastPlacement::fused)
    return no("flatten and cast_placement must be fused");
  if (strategy.gradients.merge != GradientMerge::direct) return no("gradient_merge must be direct");
  if (strategy.precision.gradients != strategy.precision.main_gradients)
    return no("main_gradient_type must be gradient_type");
  if (job.precision != DType::f32 && !job.fp32_parameters.empty())
    return no("it excludes fp32_parameters with another precision");
  if (strategy.precision.fp8_parameters) return no("fp8_parameters must be false");
  return Verdict::yes();
}

/// Tensors that are gathered or scattered where they are used are of one type.
Verdict types_are_legal(const Job& job, const Strategy& strategy) {
  const bool mixed = job.precision != DType::f32 && !job.fp32_parameters.empty();
  if (!mixed || strategy.sharding_stage < 2) return Verdict::yes();
  return Verdict::no(
      fmt::format("sharding_stage is {}; with fp32_parameters and another precision it must be "
                  "0 or 1",
                  strategy.sharding_stage));
}

constexpr std::string_view kFp8Parameters =
    "fp8_parameters goes with fp8 delayed, current, mxfp8 or blockwise";

/// The 8-bit products of Hopper and Blackwell need rows of whole 16 bytes (cuBLAS manual, "FP8
/// kernels"; Transformer Engine asserts it).
Verdict fp8_is_legal(const Job& job, const Strategy& strategy) {
  constexpr std::int64_t kRow = 16;
  if (strategy.precision.fp8 == Fp8::none) {
    return strategy.precision.fp8_parameters ? Verdict::no(std::string(kFp8Parameters))
                                             : Verdict::yes();
  }
  if (job.precision == DType::f32)
    return Verdict::no("fp8 goes with a job in bf16 or fp16, not fp32");
  if (!job.fp32_parameters.empty())
    return Verdict::no("fp8: fp32_parameters keep what they name out of 8 bits and need it in 32");
  if (strategy.precision.fp8_parameters) {
    if (!casts_weights_once(strategy.precision.fp8))
      return Verdict::no(std::string(kFp8Parameters));
    if (strategy.sharding_stage > 1) {
      return Verdict::no(
          fmt::format("fp8_parameters: sharding_stage is {}; it must be 0 or 1: what is gathered "
                      "where it is used is of one type",
                      strategy.sharding_stage));
    }
    if (strategy.optimizer.cast_placement != CastPlacement::fused ||
        strategy.optimizer.flatten != Flatten::fused)
      return Verdict::no("fp8_parameters: cast_placement and flatten must be fused");
    if (strategy.precision.main_parameters == MasterType::remainder)
      return Verdict::no("fp8_parameters: a remainder is of bf16 parameters");
  }
  const std::int64_t tokens = strategy.micro_batch * job.sequence / strategy.cp;
  const std::int64_t queries = job.heads * head_width(job) / strategy.mp;
  const std::int64_t keys = std::max(job.kv_heads / strategy.mp, std::int64_t{1}) * head_width(job);
  std::vector<std::int64_t> sizes = {job.hidden, queries, keys, job.ffn_hidden / strategy.mp,
                                     tokens};
  if (job.latent) {
    const Latent& latent = *job.latent;
    const std::int64_t heads = job.heads / strategy.mp;
    sizes.insert(sizes.end(), {latent.q_rank, latent.kv_rank, latent.rope, heads * latent.value,
                               heads * (latent.nope + latent.value)});
  }
  if (job.experts) {
    const Experts& experts = *job.experts;
    sizes.insert(sizes.end(), {experts.dense_ffn_hidden / strategy.mp, experts.latent_hidden});
  }
  for (const std::int64_t size : sizes) {
    if (size % kRow == 0) continue;
    return Verdict::no(fmt::format(
        "fp8 needs products of multiples of {}; a rank has one of {} in its layers", kRow, size));
  }
  return Verdict::yes();
}

/// Only the fused update has operands of other types (Transformer Engine's FusedAdam,
/// pytorch/optimizers/fused_adam.py: master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype,
/// store_param_remainders).
Verdict states_are_legal(const Job& job, const Strategy& strategy) {
  const bool gradients = strategy.precision.main_gradients != GradientType::f32;
  const bool masters = strategy.precision.main_parameters != MasterType::f32;
  const bool moments = strategy.precision.moments != MomentType::f32;
  if (strategy.precision.stochastic_rounding &&
      strategy.precision.main_parameters != MasterType::none)
    return Verdict::no("stochastic_rounding goes with main_parameter_type none");
  if (!gradients && !masters && !moments) return Verdict::yes();
  const char* key = gradients ? "main_gradient_type"
                    : masters ? "main_parameter_type"
                              : "moment_type";
  const auto no = [&](std::string_view why) {
    return Verdict::no(fmt::format("{} is not f32; {}", key, why));
  };
  if (job.precision == DType::f32) return no("that goes with a job in bf16 or fp16, not fp32");
  if (!job.fp32_parameters.empty()) return no("that goes without fp32_parameters");
  if (strategy.optimizer.flatten != Flatten::fused) return no("flatten must be fused");
  if (strategy.optimizer.cast_placement != CastPlacement::fused)
    return no("cast_placement must be fused");
  if (job.optimizer.kind != OptimizerKind::adamw) return no("the optimizer must be adamw");
  if (gradients && strategy.precision.gradients != GradientType::computed)
    return no("gradient_type must be computed, too");
  if (strategy.precision.main_parameters == MasterType::remainder && job.precision != DType::bf16) {
    return Verdict::no(
        "main_parameter_type is remainder: bf16 parameters are the upper half of f32 ones, of "
        "another precision there is no such half");
  }
  return Verdict::yes();
}

/// Frozen parameters have an arena without owners of whole tensors.
Verdict frozen_is_legal(const Job& job, const Strategy& strategy) {
  if (!has_frozen(job)) return Verdict::yes();
  if (strategy.owners.sharding_owner != ShardingOwner::elements)
    return Verdict::no("the job has frozen parameters; sharding_owner must be elements");
  if (experts_apart(strategy) && strategy.sharding_stage == 3)
    return Verdict::no("the job has frozen parameters; with ep, sharding_stage must be below 3");
  if (job.frozen_weights != FrozenWeights::computed && strategy.mp > 1) {
    return Verdict::no(fmt::format(
        "frozen_weights have 4 bits, in blocks that mp would cut; mp is {}", strategy.mp));
  }
  const std::vector<std::int64_t> layers = layers_per_part(job, strategy);
  if (std::ranges::find(layers, 0) != layers.end())
    return Verdict::no("the job has frozen parameters; every chunk must have a layer to train");
  return Verdict::yes();
}

}  // namespace

Verdict precision_is_legal(const Job& job, const Strategy& strategy) {
  if (Verdict verdict = merge_is_legal(strategy); !verdict) return verdict;
  if (Verdict verdict = gradient_type_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = release_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = states_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = types_are_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = frozen_is_legal(job, strategy); !verdict) return verdict;
  return fp8_is_legal(job, strategy);
}

DType master_dtype(const Strategy& strategy) {
  switch (strategy.precision.main_parameters) {
    case MasterType::f32:
      return DType::f32;
    case MasterType::f16:
      return DType::f16;
    case MasterType::remainder:
    case MasterType::none:
      return DType::bf16;
  }
  INVARIANT(false, "a type of masters");
}

DType moment_dtype(const Strategy& strategy) {
  switch (strategy.precision.moments) {
    case MomentType::f32:
      return DType::f32;
    case MomentType::bf16:
      return DType::bf16;
    case MomentType::f16:
      return DType::f16;
    case MomentType::fp8:
      return DType::e4m3;
    case MomentType::block8:
      return DType::u8;
  }
  INVARIANT(false, "a type of moments");
}

Bytes moment_scale_bytes(const Strategy& strategy, std::int64_t elements) {
  if (strategy.precision.moments != MomentType::block8) return {};
  return moment_blocks(elements) * bytes_of(DType::f32);
}

}  // namespace plimsoll
