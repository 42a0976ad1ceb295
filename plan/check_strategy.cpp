// Rules: the job is well formed and the strategy legal for it on these devices.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "plan/check_rules.h"

namespace plimsoll {
namespace {

Finding job_well_formed(const CheckContext& context) {
  try {
    check_job(context.plan.job, "job");
  } catch (const InputError& error) {
    return error.what();
  }
  return std::nullopt;
}

Finding devices_product(const CheckContext& context) {
  const Strategy& s = context.plan.strategy;
  const std::int64_t degrees[] = {s.mp, s.pp, s.dp, s.sharding_degree, s.cp};
  if (*std::min_element(std::begin(degrees), std::end(degrees)) < 1) {
    return fmt::format("mp {}, pp {}, dp {}, sharding_degree {}, cp {}: a degree is at least 1",
                       s.mp, s.pp, s.dp, s.sharding_degree, s.cp);
  }
  // Divided step by step: the product of untrusted degrees could overflow.
  std::int64_t rest = context.plan.devices;
  for (std::int64_t degree : degrees) rest = rest % degree == 0 ? rest / degree : 0;
  if (rest == 1) return std::nullopt;
  return fmt::format("mp {} x pp {} x dp {} x sharding_degree {} x cp {} must be the {} devices",
                     s.mp, s.pp, s.dp, s.sharding_degree, s.cp, context.plan.devices);
}

Finding batch_divides(const CheckContext& context) {
  const Strategy& s = context.plan.strategy;
  const std::int64_t batch = context.plan.job.global_batch;
  std::int64_t rest = batch;
  for (std::int64_t degree : {s.dp, s.sharding_degree, s.micro_batch}) {
    if (degree < 1 || rest % degree != 0) {
      return fmt::format(
          "a global batch of {} sequences is not a whole number of micro-batches of {} on each of "
          "dp {} x sharding_degree {} replicas",
          batch, s.micro_batch, s.dp, s.sharding_degree);
    }
    rest /= degree;
  }
  return std::nullopt;
}

Finding layers_cover(const CheckContext& context) {
  const std::vector<std::int64_t>& split = context.plan.strategy.pipeline.layer_split;
  if (split.empty()) return std::nullopt;  // resolved as evenly as possible, which always covers
  const Strategy& s = context.plan.strategy;
  const auto layers = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  if (std::int64_t(split.size()) != s.pp * s.pipeline.virtual_stages) {
    return fmt::format("layer_split names {} chunks, pp {} x virtual_stages {} are {}",
                       split.size(), s.pp, s.pipeline.virtual_stages,
                       s.pp * s.pipeline.virtual_stages);
  }
  if (layers != total_layers(context.plan.job)) {
    return fmt::format("layer_split covers {} layers, the job has {}", layers,
                       total_layers(context.plan.job));
  }
  return std::nullopt;
}

Finding sharding_stage(const CheckContext& context) {
  const Strategy& s = context.plan.strategy;
  const bool known = s.sharding_stage >= 0 && s.sharding_stage <= 3;
  const bool by_context = s.cp > 1 && s.sharding_degree == 1;  // cp shards alone, or nothing does
  if (known && (by_context || (s.sharding_stage > 0) == (s.sharding_degree > 1)))
    return std::nullopt;
  return fmt::format(
      "sharding_stage {} with sharding_degree {}: 0 to 3; above 0 exactly if the degree is "
      "above 1, or either if cp alone is",
      s.sharding_stage, s.sharding_degree);
}

Finding strategy_legal(const CheckContext& context) {
  // The other rules of this file have said it, and degrees below 1 have no meaning further on.
  for (const auto rule :
       {job_well_formed, devices_product, batch_divides, layers_cover, sharding_stage}) {
    if (rule(context)) return std::nullopt;
  }
  const Strategy& strategy = context.plan.strategy;
  Verdict verdict = legal(context.plan.job, strategy, context.plan.devices);
  if (verdict) verdict = legal(context.plan.framework, context.plan.job, strategy);
  if (verdict) return std::nullopt;
  return verdict.reason();
}

constexpr CheckRule kStrategyRules[] = {
    {{"job-well-formed", "The embedded job keeps the rules of a job file."}, job_well_formed},
    {{"devices-product", "mp x cp x pp x dp x sharding_degree is the number of devices."},
     devices_product},
    {{"batch-divides", "The global batch is a whole number of micro-batches on every replica."},
     batch_divides},
    {{"layers-cover",
      "A stated layer split has one entry per stage, or per chunk of layers, and covers every "
      "layer once."},
     layers_cover},
    {{"sharding-stage",
      "Sharding stages 1 to 3 exactly if the sharding degree is above 1; with degree 1 and cp "
      "above 1 stages 0 to 3."},
     sharding_stage},
    {{"strategy-legal", "The strategy is legal for the job, these devices and the framework."},
     strategy_legal},
};

}  // namespace

std::span<const CheckRule> strategy_rules() { return kStrategyRules; }

}  // namespace plimsoll
