// Rules about updates by the host, and about activations and parameters in its memory.
#include "passes/strategy/offload_rules.h"

#include <fmt/format.h>

namespace plimsoll {

Verdict offload_is_legal(const Job& job, const Strategy& strategy) {
  if (strategy.optimizer.offload_percent == 0) {
    return strategy.optimizer.overlap_offload
               ? Verdict::no("overlap_offload goes with offload_optimizer_percent above 0")
               : Verdict::yes();
  }
  const auto no = [&](std::string_view why) {
    return Verdict::no(fmt::format("offload_optimizer_percent is {}; {}",
                                   strategy.optimizer.offload_percent, why));
  };
  if (job.optimizer.kind == OptimizerKind::lamb)
    return no("the optimizer must be adamw or sgd: LAMB reads norms of whole tensors");
  if (strategy.optimizer.flatten != Flatten::fused) return no("flatten must be fused");
  if (strategy.precision.main_gradients != GradientType::f32 ||
      strategy.precision.main_parameters != MasterType::f32 ||
      strategy.precision.moments != MomentType::f32)
    return no("main_gradient_type, main_parameter_type and moment_type must be f32");
  if (strategy.precision.fp8_parameters) return no("it goes without fp8_parameters");
  if (job.precision != DType::f32 && !job.fp32_parameters.empty())
    return no("it excludes fp32_parameters with another precision");
  return Verdict::yes();
}

Verdict paging_is_legal(const Job& job, const Strategy& strategy) {
  if (!strategy.optimizer.paged) return Verdict::yes();
  const auto no = [](std::string_view why) {
    return Verdict::no(fmt::format("paged_states: {}", why));
  };
  if (job.optimizer.kind != OptimizerKind::adamw) return no("the optimizer must be adamw");
  if (strategy.optimizer.offload_percent > 0) return no("offload_optimizer_percent must be 0");
  if (strategy.gradients.release) return no("release_gradients must be false");
  if (strategy.owners.sharding_owner != ShardingOwner::elements)
    return no("sharding_owner must be elements");
  if (strategy.optimizer.flatten != Flatten::fused ||
      strategy.optimizer.cast_placement == CastPlacement::after_update)
    return no("flatten must be fused, and cast_placement not after_update");
  if (job.precision != DType::f32 && !job.fp32_parameters.empty())
    return no("it excludes fp32_parameters with another precision");
  return Verdict::yes();
}

Verdict activations_are_legal(const Job& job, const Strategy& strategy) {
  const auto& [percent, layers] = strategy.offloaded;
  if (layers > total_layers(job))
    return Verdict::no(fmt::format("offload_activations_layers is {}; the model has {} layers",
                                   layers, total_layers(job)));
  if (percent == 0 && layers > 0)
    return Verdict::no("offload_activations_layers goes with offload_activations_percent above 0");
  if (percent > 0 && percent < 100 && strategy.recompute == Recompute::full) {
    return Verdict::no(fmt::format(
        "offload_activations_percent is {}; with recompute full it must be 0 or 100: a layer keeps "
        "one tensor, its input, and offload_activations_layers chooses among layers",
        percent));
  }
  return Verdict::yes();
}

Verdict parameters_are_legal(const Job& job, const Strategy& strategy) {
  if (!strategy.gathers.offload) return Verdict::yes();
  const auto no = [](std::string_view why) {
    return Verdict::no(fmt::format("offload_parameters: {}", why));
  };
  if (strategy.optimizer.offload_percent < 100 && !has_frozen(job)) {
    return no(fmt::format(
        "offload_optimizer_percent is {}; it must be 100 unless parameters are frozen: the host "
        "updates what its memory holds",
        strategy.optimizer.offload_percent));
  }
  if (strategy.optimizer.flatten != Flatten::fused) return no("flatten must be fused");
  if (strategy.optimizer.overlap_offload)
    return no("overlap_offload must be false: no parameters are copied back");
  if (optimizer_shards(strategy) == 1 && experts_apart(strategy))
    return no("ep and etp go with a sharding_degree above 1");
  return Verdict::yes();
}

bool keeps_trained_on_host(const Strategy& strategy) {
  return strategy.gathers.offload && strategy.optimizer.offload_percent == 100;
}

std::int64_t host_elements(const Strategy& strategy, std::int64_t updated) {
  return (updated * strategy.optimizer.offload_percent + 99) / 100;
}

}  // namespace plimsoll
