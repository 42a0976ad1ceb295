// Published runs become jobs, machines and strategies.
#include "published/published_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/cluster/network_kind.h"
#include "models/presets/presets.h"
#include "predict/fit_transfer.h"
#include "published/published_job.h"
#include "published/published_strategy.h"

namespace plimsoll {
namespace {

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
  if (need == "offload") return run.offload_optimizer_percent > 0;
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
