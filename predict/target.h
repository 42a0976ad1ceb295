// Target: a job on devices of a cluster, with all that predictions of it share. Only the strategy
// varies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "models/job/examples.h"
#include "models/job/job.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/strategy.h"
#include "plan/plan.h"
#include "predict/memo.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

struct Target {
  Target(Job for_job, CostModel with_costs, std::int64_t on_devices, Bytes kept_free = {})
      : job(std::move(for_job)),
        costs(std::make_shared<const CostModel>(
            job.experts ? with_costs.with_token_rows(
                              {job.experts->chosen, job.experts->groups, job.experts->top_groups})
                        : with_costs)),
        devices(on_devices),
        reserve(kept_free) {}

  Job job;
  /// The costs of ops. They hold the cluster and the framework. Copies of a target share them.
  std::shared_ptr<const CostModel> costs;
  std::int64_t devices = 0;
  Bytes reserve;  ///< bytes of each device that a plan keeps free, for libraries and the runtime
  /// Drawn ranks of a job with lengths, by global batch. Copies of a target share them.
  std::shared_ptr<Memo<SlowestRank, std::int64_t>> slowest_ranks =
      std::make_shared<Memo<SlowestRank, std::int64_t>>();

  const Cluster& cluster() const { return costs->cluster(); }
  const Framework& framework() const { return costs->framework(); }
};

/// Whether a target has more devices than its cluster. CPU cores may have several ranks each.
bool is_oversubscribed(const Target& target);
/// Throws InfeasibleError where a target has more GPUs than its cluster.
void check_devices(const Target& target);
/// Whether the framework plans its memory in an arena, rather than asking an allocator.
bool has_arena(const Framework& framework);
/// Returns what lowering a strategy takes. The result refers to both arguments.
PassContext context_of(const Target& target, const Strategy& strategy);
/// Checks a strategy by the rules of the job and those of the framework.
Verdict legal(const Target& target, const Strategy& strategy);
/// Returns the shape that the time of a strategy's layers depends on.
LayerShape layer_shape(const Job& job, const Strategy& strategy);
/// Returns the size of the job's model, as fits list it.
ModelSize model_size(const Job& job);
/// Returns the target's costs of ops, with the factor fitted for the strategy's layers.
CostModel costs_of_layers(const Target& target, const Strategy& strategy);
/// Returns how much longer than on the mean rank attention takes on the strategy's slowest one.
SlowestRank slowest_rank(const Target& target, const Strategy& strategy);
/// Returns the costs of ops by which steps are predicted: those of the slowest rank.
CostModel costs_of(const Target& target, const Strategy& strategy);

/// Returns the bytes of each device that the framework takes beside the strategy's Program.
Bytes outside_program(const Target& target, const Strategy& strategy);
/// Returns what was learned of the memory of steps on the target.
std::optional<LearnedMemory> learned_memory(const Target& target);
/// Returns the bytes of a device of `capacity` that the framework may reserve for a Program; 0
/// where none are left.
Bytes room_for_program(const Target& target, const Strategy& strategy, Bytes capacity);
/// Returns what the ranks of a node keep in the host's memory together: the most of all nodes.
Bytes host_memory_of_node(const Target& target, const Strategy& strategy,
                          std::span<const StagePrediction> stages);
/// Whether the host of each node has memory for what its ranks keep there. It has where the cluster
/// does not state how much there is.
bool fits_host(const Target& target, const Strategy& strategy,
               std::span<const StagePrediction> stages);
/// Whether every stage fits its smallest device: the bytes that the stage reserves, those outside
/// the Program, and the reserve. It also fits the host's memory.
bool fits_devices(const Target& target, const Strategy& strategy,
                  std::span<const StagePrediction> stages);
/// Returns the memory of the largest device. No stage can use more, wherever it runs.
Bytes largest_memory(const Target& target);

}  // namespace plimsoll
