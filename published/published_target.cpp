// Published runs become jobs, machines and strategies.
#include "published/published_target.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "models/cluster/network_kind.h"
#include "models/framework/framework.h"
#include "models/presets/presets.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/rank_orders.h"
#include "passes/strategy/recompute_rules.h"
#include "passes/strategy/strategy.h"
#include "predict/fit_transfer.h"
#include "published/published_job.h"
#include "published/published_run.h"

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
  Strategy strategy = run.chosen;
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

/// Returns the micro-batches that the row states or implies, else powers of two from 1 to 16.
std::vector<std::int64_t> micro_batches_of(const PublishedRun& run) {
  if (run.micro_batch) return {*run.micro_batch};
  if (run.global_batch && run.accumulation && *run.accumulation > 0)
    return {*run.global_batch / (run.dp * *run.accumulation)};
  return {1, 2, 4, 8, 16};
}

/// Returns the strategies that the row may mean. There are several where the source leaves out
/// choices of its authors, and not all need be legal. `full` says whether layers were recomputed
/// where the source does not, if that is known.
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

Cluster preset(std::string_view name) {
  const auto text = find_preset(cluster_presets(), name);
  INVARIANT(text, "a preset of that name");
  return parse_cluster(*text, std::string(name));
}

/// Devices of a node, which its fastest level connects. A rack is one node, whatever trays a row
/// states.
std::int64_t devices_per_node(const PublishedRun& run, const Cluster& cluster) {
  if (run.rack) {
    const bool several = run.gpus > run.rack->devices && run.gpus % run.rack->used_of_several == 0;
    return several ? run.rack->used_of_several : std::min(run.rack->devices, run.gpus);
  }
  return std::min(run.gpus_per_node.value_or(cluster.devices_per_node), run.gpus);
}

Cluster cluster_of(const PublishedRun& run) {
  if (run.own_cluster) {
    Cluster own = *run.own_cluster;
    own.nodes.reset();  // the run states how many devices it had
    return own;
  }
  Cluster cluster = preset(run.cluster);
  const std::int64_t per_node = devices_per_node(run, cluster);
  cluster.devices_per_node = per_node;
  cluster.levels[0].devices = per_node;
  if (run.network_rate) cluster.levels.back().bandwidth = *run.network_rate;
  if (!run.network.empty()) set_network_kind(*find_network_kind(run.network), cluster);
  if (run.core_speed) {
    if (!cluster.host) cluster.host.emplace();
    cluster.host->core_speed = *run.core_speed;
  }
  return cluster;
}

/// Whether a predictor of this kind has what a row needs.
bool is_met(std::string_view need, const PublishedRun& run) {
  if (need == "vocabulary unknown") return run.vocab.has_value();
  if (need == "precision unknown") return run.fp8 != Fp8::none;  // what a rule states
  if (need == "moe") return run.experts.has_value();
  if (need == "a2a overlap") return run.overlaps_expert_exchange && run.ep > 1;
  if (need == "dispatcher model")
    return run.framework && run.framework->parallelism.sends_tokens_once_per_node;
  if (need == "offload")
    return run.chosen.optimizer.offload_percent > 0 || run.chosen.offloaded.percent > 0;
  if (need == "zero-bubble")
    return run.framework && run.framework->can.pipelines.schedules.value.has(Schedule::zb_h1);
  // Where a row does not say whether layers were repeated, or how large micro-batches were, all
  // ways to run are predicted.
  return need == "fp8" || need == "cp" || need == "recompute unknown" ||
         need == "micro-batch unknown";
}

/// The need of a predictor of this kind that a row does not meet; empty: all is there.
std::string missing_of(const PublishedRun& run) {
  for (const std::string& need : run.needs) {
    if (!is_met(need, run)) return need;
  }
  if (!run.hidden || !run.layers || !run.heads) return "model size";
  if (!run.vocab) return "vocabulary";
  if (!run.sequence) return "sequence";
  if (!run.also_needs.empty()) return run.also_needs;
  if (!run.precision) return "precision " + run.precision_words;
  if (!run.framework) return "framework";
  if (run.cluster.empty() && !run.own_cluster) return "gpu " + run.gpu;
  return "";
}

/// Returns the preset, changed by the facts that the run's source states.
Framework framework_of(const PublishedRun& run) {
  Framework framework = *run.framework;
  // The run had this stage, whatever the preset says: engines without a preset of their own.
  for (auto* stages :
       {&framework.can.ranks.sharding_stages, &framework.can.ranks.pipeline_sharding_stages})
    stages->value.add(run.zero_stage.value_or(0));
  return framework;
}

/// Returns the global batch of a run. For a run that was out of memory it is the least batch that
/// could show this. 0: not known.
std::int64_t global_batch_of(const PublishedRun& run) {
  if (run.global_batch) return *run.global_batch;
  if (run.accumulation && run.micro_batch)
    return micro_batches_of(run).front() * run.dp * *run.accumulation;
  // One GPU that says nothing of accumulation has none.
  if (run.micro_batch && run.gpus == 1) return *run.micro_batch;
  return run.out_of_memory ? run.dp : 0;
}

/// Returns whether costs were found. If not, the target names what is missing.
bool find_cost_basis(const PublishedRun& run, const CalibrationChoice& calibration,
                     PublishedTarget& target) {
  try {
    CostBasis basis = cost_basis(target.cluster, target.framework, calibration, run.cluster,
                                 document_of(run.source));
    target.cluster = std::move(basis.cluster);
    target.framework = std::move(basis.framework);
    target.measured = std::move(basis.measured);
    target.fitted = std::move(basis.fitted);
    target.calibration = basis.source.name;
    return true;
  } catch (const InputError& error) {
    target.missing = error.what();
    return false;
  }
}

/// Returns whether a job of these sizes is allowed.
bool find_job(const PublishedRun& run, std::int64_t global_batch, PublishedTarget& target) {
  target.job = published_job(run, global_batch);
  if (run.pads_vocabulary)
    target.job.vocab = padded_vocabulary(target.job.vocab, target.framework, run.tp);
  try {
    check_job(target.job, run.id);
    return true;
  } catch (const InputError& error) {
    target.missing = error.what();
    return false;
  }
}

}  // namespace

Target PublishedTarget::target() const {
  return Target(job, CostModel(cluster, measured, framework, fitted), devices);
}

void put_on(const Cluster& cluster, PublishedRun& run) {
  const bool same = run.gpu == cluster.device.name ||
                    (!run.cluster.empty() &&
                     device_difference(preset(run.cluster).device, cluster.device).empty());
  if (same) run.own_cluster = cluster;
}

PublishedTarget published_target(const PublishedRun& run, const CalibrationChoice& calibration,
                                 const AssumedRecompute& assumed) {
  PublishedTarget target;
  target.missing = missing_of(run);
  if (!target.missing.empty()) return target;
  target.devices = run.gpus;
  target.cluster = cluster_of(run);
  target.device = target.cluster.device;
  target.framework = framework_of(run);
  target.memory_of_last_rank = run.memory_of_last_rank;
  if (!find_cost_basis(run, calibration, target)) return target;
  const std::int64_t global_batch = global_batch_of(run);
  if (global_batch == 0) {
    target.missing = "global batch";
    return target;
  }
  if (!find_job(run, global_batch, target)) return target;
  const bool across_nodes = target.devices > target.cluster.devices_per_node;
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
