// Rows of published runs become strategies.
#include "published/published_strategy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/rank_orders.h"
#include "passes/strategy/recompute_rules.h"

namespace plimsoll {
namespace {

/// Returns the modules that a run repeats. Parts of others are left out, and attention cores where
/// no scores are kept.
SetOf<RecomputedModule> modules_of(const PublishedRun& run, const Framework& framework) {
  SetOf<RecomputedModule> modules;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    const auto module = RecomputedModule(i);
    const bool kept =
        module != RecomputedModule::core_attention || !framework.kernels.attention.flash;
    if (kept && run.recompute_modules.has(module) &&
        framework.can.repeats.modules.value.has(module))
      modules.add(module);
  }
  return without_parts(modules);
}

std::vector<Recompute> recomputes_of(const PublishedRun& run, const Framework& framework,
                                     const std::optional<bool>& full) {
  const bool scores = framework.can.repeats.recompute.value.has(Recompute::selective) &&
                      !framework.kernels.attention.flash;
  const SetOf<RecomputedModule> core = {RecomputedModule::core_attention};
  const SetOf<RecomputedModule> modules = modules_of(run, framework);
  const Recompute some = !modules.empty() && modules != core ? Recompute::modules
                         : scores                            ? Recompute::selective
                                                             : Recompute::none;
  switch (run.recompute) {
    case StatedRecompute::none:
      return {Recompute::none};
    case StatedRecompute::selective:
      return {some};
    case StatedRecompute::full:
    case StatedRecompute::layers:
      return {Recompute::full};
    case StatedRecompute::per_op:
      return {Recompute::per_op};
    case StatedRecompute::unknown:
      break;
  }
  if (full) return {*full ? Recompute::full : some};
  return {some, Recompute::full};
}

/// Returns whether a run has 8-bit parameters: they must be sharded, and scaled by tensor.
bool has_fp8_parameters(const PublishedRun& run) {
  return run.fp8_parameters && run.zero_stage == 1 && run.dp * run.cp > 1 &&
         casts_weights_once(run.fp8);
}

/// Returns the layers of each stage, or of each of its chunks, as the row states them. It is empty
/// where the row does not state them, or where they do not sum to the model's.
std::vector<std::int64_t> stated_split(const PublishedRun& run) {
  std::vector<std::int64_t> split = run.layers_per_stage;
  const std::int64_t chunks = run.pp * run.virtual_stages.value_or(1);
  if ((std::ssize(split) != run.pp && std::ssize(split) != chunks) || run.pp < 2) return {};
  const std::int64_t sum = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  if (sum == *run.layers) {
    split.back() += run.predicted_ahead;  // behind the layers
    return split;
  }
  if (sum != *run.layers + 2) return {};
  --split.front();
  --split.back();
  return split;
}

void shard(const PublishedRun& run, Strategy& strategy) {
  const std::int64_t per_node = run.gpus_per_node.value_or(8), stage = run.zero_stage.value_or(0);
  strategy.dp = run.dp;
  if (stage == 0 || run.dp * run.cp <= 1) return;
  const bool within_node = run.shards_within_node && run.dp % per_node == 0;
  strategy.sharding_stage = stage;
  strategy.sharding_degree = run.shards.value_or(within_node ? per_node : run.dp);
  strategy.dp = run.dp / strategy.sharding_degree;
}

Strategy strategy_of(const PublishedRun& run, const Framework& framework) {
  Strategy strategy;
  strategy.mp = run.tp;
  strategy.pp = run.pp;
  strategy.cp = run.cp;
  strategy.ep = run.ep;
  strategy.experts.etp = run.etp;
  // Frameworks allocate the rows that come.
  if (run.experts) strategy.experts.rows_percent = std::llround(100 * run.experts->load);
  strategy.experts.overlap_exchange = run.overlaps_expert_exchange && run.ep > 1;
  strategy.schedule = run.schedule;
  strategy.pipeline.virtual_stages =
      is_placed_as_v(run.schedule) ? 2 : run.virtual_stages.value_or(1);
  shard(run, strategy);
  strategy.rank_order = rank_orders(framework, strategy, {}).tried.front();
  strategy.tokens.sequence_parallel = run.sequence_parallel.value_or(false) && run.tp > 1;
  strategy.pipeline.split_boundary =
      run.splits_boundary && run.tp > 1 && run.pp > 1 && !strategy.tokens.sequence_parallel;
  strategy.precision.fp8 = run.fp8;
  strategy.precision.fp8_parameters = has_fp8_parameters(run);
  strategy.precision.gradients = run.gradient_type;
  strategy.precision.moments = run.moment_type;
  strategy.optimizer.offload_percent = run.offload_optimizer_percent;
  strategy.pipeline.layer_split = stated_split(run);
  if (strategy.pipeline.layer_split.empty() && run.pp > 1)
    strategy.pipeline.embedding_as_layers = strategy.pipeline.loss_as_layers = run.ends_as_layers;
  return strategy;
}

/// Strategies that repeat every n-th layer, for each n that the row may mean; `strategy` itself
/// where it means all or none.
std::vector<Strategy> of_layers(const Strategy& strategy, const PublishedRun& run) {
  if (run.recompute != StatedRecompute::layers) return {strategy};
  std::vector<Strategy> choices;
  for (const std::int64_t nth : run.recompute_every) {
    Strategy& choice = choices.emplace_back(strategy);
    for (std::int64_t layer = 0; layer < *run.layers; layer += nth)
      choice.recomputed.list.push_back(layer);
  }
  return choices;
}

}  // namespace

std::vector<std::int64_t> micro_batches_of(const PublishedRun& run) {
  if (run.micro_batch) return {*run.micro_batch};
  if (run.global_batch && run.accumulation && *run.accumulation > 0)
    return {*run.global_batch / (run.dp * *run.accumulation)};
  return {1, 2, 4, 8, 16};
}

std::vector<Strategy> strategies_of(const PublishedRun& run, const Framework& framework,
                                    const std::optional<bool>& full) {
  std::vector<Strategy> strategies;
  for (const Recompute recompute : recomputes_of(run, framework, full)) {
    for (const std::int64_t micro_batch : micro_batches_of(run)) {
      Strategy whole = strategy_of(run, framework);
      whole.recompute = recompute;
      if (recompute == Recompute::modules) whole.recomputed.modules = modules_of(run, framework);
      whole.micro_batch = micro_batch;
      for (const Strategy& strategy : of_layers(whole, run)) strategies.push_back(strategy);
    }
  }
  return strategies;
}

}  // namespace plimsoll
