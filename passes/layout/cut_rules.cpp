// These rules say, for a strategy and a graph, how blocks are cut.
#include <numeric>
#include <set>

#include "passes/cut/cut_blocks.h"
#include "passes/owners/owner_mode.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/sharding_rules.h"

namespace plimsoll {

std::int64_t arena_alignment(const Job& job, const Strategy& strategy) {
  // Where every use casts, parameters stay f32. Gradients of the step stay f32, too, unless chosen
  // otherwise.
  const bool cast_by_uses = strategy.optimizer.cast_placement == CastPlacement::every_use &&
                            strategy.precision.gradients == GradientType::f32;
  const DType smallest = strategy.precision.fp8_parameters ? DType::e4m3
                         : cast_by_uses                    ? DType::f32
                                                           : job.precision;
  const std::int64_t least = kBlockAlignment.count() / bytes_of(smallest).count();
  // Blocks of moments begin where tensors do, and no rank's part cuts one. So all shards of a
  // tensor have the scales that one rank has.
  const std::int64_t per_block =
      strategy.precision.moments == MomentType::block8 ? std::lcm(least, kMomentBlock) : least;
  const std::int64_t shards = equal_shards(strategy);
  const bool apart = experts_apart(strategy) && shards > 1;
  return per_block * (apart ? std::lcm(shards, grid_of(strategy)[Axis::edp]) : shards);
}

std::int64_t padded(std::int64_t elements, std::int64_t alignment) {
  return (elements + alignment - 1) / alignment * alignment;
}

BackwardCut backward_cut(const Strategy& strategy) {
  return splits_backward(strategy.schedule) ? BackwardCut::split : BackwardCut::whole;
}

CutChoices cut_choices(const Strategy& strategy) {
  return {backward_cut(strategy), resident_parameters(strategy), scatters_bundles(strategy),
          strategy.experts.overlap_exchange, strategy.offloaded.percent};
}

bool mixes_types(const Graph& graph) {
  std::set<DType> parameters, gradients;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::parameter && !tensor.arena) parameters.insert(tensor.dtype);
  }
  for (const Op& op : graph.ops) {
    if (!op.block || op.phase == Phase::optimizer) continue;
    for (TensorId id : op.outputs) {
      if (graph.at(id).gradient_of) gradients.insert(graph.at(id).dtype);
    }
  }
  return parameters.size() > 1 || gradients.size() > 1;
}

}  // namespace plimsoll
