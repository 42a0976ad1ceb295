// Blocks of a Graph are cut into routines with slots, frames and bundles.
#include "passes/cut/cut_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/cut/exchange_parts.h"
#include "passes/cut/routine_builder.h"
#include "passes/cut/split_backward.h"
#include "passes/cut/update_runs.h"

namespace plimsoll {

namespace {

/// Lays out the bundle. Parameters that stay whole in stage 3 come last. Within either kind those
/// of experts with a grid of their own come behind the others. Within each of these, parameters
/// with partial gradients come last, by group, so that gradients that are summed together lie
/// together.
void lay_out_bundle(const Graph& graph, BlockId block, std::int64_t alignment,
                    const ResidentParameters& resident, CutBlock& cut) {
  using Kind = std::tuple<bool, bool, std::optional<Group>>;
  std::map<Kind, std::vector<TensorId>> by_group;
  for (std::size_t i = graph.tensors.size(); i-- > 0;) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.role != TensorRole::parameter || tensor.arena || tensor.tied_to ||
        tensor.block != block)
      continue;
    const bool stays = resident.has(tensor);
    by_group[{stays, is_of_experts(tensor), tensor.gradient_group}].push_back(TensorId(i));
  }
  for (const auto& [key, parameters] : by_group) {
    for (TensorId id : parameters) {
      const std::int64_t count = elements(graph.at(id).shape);
      cut.bundle.push_back({id, cut.bundle_elements, count});
      cut.bundle_elements += padded(count, alignment);
    }
    if (!std::get<0>(key)) cut.gathered_elements = cut.bundle_elements;
  }
}

/// Sorts saved tensors by the routine that reads them last, and finds those that the first part of
/// backward leaves for the second.
Crossing crossing_of(const Graph& graph, BlockId block, const BackwardParts& backward) {
  std::set<TensorId> late, written;
  for (const Op& op : backward.weight) late.insert(op.inputs.begin(), op.inputs.end());
  for (const Op& op : backward.input) written.insert(op.outputs.begin(), op.outputs.end());
  Crossing crossing;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorId id(i);
    const Tensor& tensor = graph.at(id);
    if (tensor.role == TensorRole::saved && tensor.block == block) {
      (late.contains(id) ? crossing.saved_for_weights : crossing.saved).push_back(id);
    } else if (late.contains(id) && written.contains(id) && !tensor.gradient_of) {
      crossing.deferred.push_back(id);
    }
  }
  return crossing;
}

/// The block whose routines are cut in parts.
struct PartsOf {
  const Graph& graph;
  const CutBlock& bundle;
  BlockId block;
  const Crossing& crossing;
  bool scattered = false;
};

std::vector<RoutinePart> cut_in_parts(const PartsOf& of, const std::string& name, Phase phase,
                                      const std::vector<Op>& ops) {
  const std::vector<std::vector<Op>> parts = parts_at_exchanges(ops);
  if (parts.size() < 2) return {};
  const auto builder = [&](const Crossing& crossing) {
    return RoutineBuilder(of.graph, &of.bundle, of.block, crossing, of.scattered);
  };
  const Crossing crossing = with_carried(of.graph, of.crossing, parts, builder(of.crossing));
  std::vector<Routine> routines;
  for (std::size_t p = 0; p < parts.size(); ++p)
    routines.push_back(builder(crossing).build(fmt::format("{}.{}", name, p), phase, parts[p]));
  return with_waits(parts, std::move(routines));
}

}  // namespace

CutBlock cut_block(const Graph& graph, BlockId block, std::int64_t alignment,
                   const CutChoices& choices,
                   const std::function<std::vector<Op>(std::vector<Op>)>& rewrite) {
  CutBlock target;
  const BlockId home = graph.at(block).variant_of.value_or(block);
  lay_out_bundle(graph, home, alignment, choices.resident, target);
  std::vector<Op> forward, copies;
  BackwardParts backward;
  for (const Op& op : graph.ops) {
    if (op.block != block || op.phase == Phase::optimizer) continue;
    if (op.phase != Phase::forward) {
      backward.input.push_back(op);
    } else {
      (runs_once_per_step(graph, op) ? copies : forward).push_back(op);
    }
  }
  if (choices.backward == BackwardCut::split)
    backward = split_backward(graph, block, backward.input);
  Crossing crossing = crossing_of(graph, block, backward);
  if (rewrite) {
    std::set<TensorId> named;
    for (std::vector<Op>* ops : {&forward, &backward.input, &backward.weight}) {
      *ops = rewrite(std::move(*ops));
      for (const Op& op : *ops) {
        named.insert(op.inputs.begin(), op.inputs.end());
        named.insert(op.outputs.begin(), op.outputs.end());
      }
    }
    for (auto* list : {&crossing.saved, &crossing.saved_for_weights, &crossing.deferred}) {
      std::erase_if(*list, [&](TensorId id) { return !named.contains(id); });
    }
  }
  const auto build = [&](const char* role, Phase phase, const std::vector<Op>& ops) {
    return RoutineBuilder(graph, &target, block, crossing, choices.scattered)
        .build(graph.at(block).name + role, phase, ops);
  };
  if (!copies.empty()) target.weight_copies = build(".weight_copies", Phase::forward, copies);
  target.forward = build(".forward", Phase::forward, forward);
  target.backward = build(".backward", Phase::backward, backward.input);
  if (choices.exchanges_apart) {
    const auto cut = [&](const char* role, Phase phase, const std::vector<Op>& ops) {
      return cut_in_parts({graph, target, block, crossing, choices.scattered},
                          graph.at(block).name + role, phase, ops);
    };
    target.forward_parts = cut(".forward", Phase::forward, forward);
    target.backward_parts = cut(".backward", Phase::backward, backward.input);
  }
  if (backward.weight.empty()) return target;
  target.weight_gradient = build(".weight_gradient", Phase::backward_weight, backward.weight);
  return target;
}

CutGraph cut_blocks(const Graph& graph, std::int64_t alignment, const CutChoices& choices) {
  CutGraph cut;
  cut.alignment = alignment;
  CutChoices of_block = choices;
  of_block.scattered = choices.scattered || mixes_types(graph);
  for (std::size_t b = 0; b < graph.blocks.size(); ++b)
    cut.blocks.push_back(cut_block(graph, BlockId(b), alignment, of_block));
  std::vector<Op> begin;
  for (const Op& op : graph.ops) {
    if (!op.block && begins_step(graph, op)) begin.push_back(op);
  }
  cut.begin_step = RoutineBuilder(graph, nullptr, {}).build("begin_step", Phase::optimizer, begin);
  for (const UpdateRun& run : update_runs(graph)) {
    UpdatePart& part = cut.update.emplace_back();
    if (!run.whole.empty()) {
      const std::size_t index = cut.update.size() - 1;
      const std::string name = index == 0 ? "optimizer" : fmt::format("optimizer{}", index);
      part.routine = RoutineBuilder(graph, nullptr, {}).build(name, Phase::optimizer, run.whole);
    }
    for (const auto& [parameter, ops] : run.of_tensors) {
      const std::string name =
          fmt::format("{}.{}", to_text(ops.back().kind), graph.at(parameter).name);
      part.each.push_back(
          {parameter, RoutineBuilder::of_one_tensor(graph).build(name, Phase::optimizer, ops)});
    }
  }
  return cut;
}

}  // namespace plimsoll
