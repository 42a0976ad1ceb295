// Blocks are cut again for the owners of their tensors.
#include "passes/owners/owned_cuts.h"

#include <algorithm>

#include "passes/graph/parameter_casts.h"

namespace plimsoll {

namespace {

bool is_broadcast(const Op& op) { return op.kind == OpKind::broadcast && op.block; }

/// Owners are listed by parameter.
using Owners = std::map<TensorId, std::int64_t>;

/// Returns the ops of a block as the rank `own` runs them.
std::vector<Op> at_rank(const Graph& graph, std::vector<Op> ops, const Owners& owners,
                        std::int64_t own) {
  std::map<TensorId, TensorId> in_place;  // what is received -> what is there
  std::vector<Op> result;
  for (Op& op : ops) {
    if (is_broadcast(op)) {
      const TensorId value = op.inputs[0], received = op.outputs[0];
      auto& params = std::get<CollectiveParams>(op.params);
      params.root = owners.at(*parameter_of(graph, value));
      const bool here = params.root == own;
      if (here) in_place[received] = value;
      op.inputs = op.outputs = {here ? value : received};
    } else if (op.kind == OpKind::cast) {
      // A parameter that is not here is received in the type that it is cast to.
      const auto owner = owners.find(parameter_of(graph, op.outputs[0]).value_or(TensorId()));
      if (owner != owners.end() && owner->second != own) continue;
    }
    for (TensorId& id : op.inputs) {
      if (const auto found = in_place.find(id); found != in_place.end()) id = found->second;
    }
    result.push_back(std::move(op));
  }
  return result;
}

}  // namespace

OwnedCuts::OwnedCuts(const Graph& graph, const CutGraph& cut, const Strategy& strategy,
                     const std::vector<OwnedInstance>& instances,
                     std::optional<std::int64_t> owner) {
  const bool rewrites = owner && std::any_of(graph.ops.begin(), graph.ops.end(), is_broadcast);
  for (const OwnedInstance& instance : instances) {
    if (!rewrites) {
      of_.push_back(&cut.blocks[instance.block.index()]);
      continue;
    }
    Owners owners = instance.owners;
    std::erase_if(owners, [&](const auto& one) {
      return elements(graph.at(one.first).shape) <= resident_limit(strategy);
    });
    const auto [found, fresh] = cuts_.try_emplace({instance.block, std::move(owners)});
    if (fresh) {
      CutChoices choices = cut_choices(strategy);
      choices.scattered = true;
      found->second =
          cut_block(graph, instance.block, cut.alignment, choices, [&](std::vector<Op> ops) {
            return at_rank(graph, std::move(ops), found->first.second, *owner);
          });
    }
    of_.push_back(&found->second);
  }
}

}  // namespace plimsoll
