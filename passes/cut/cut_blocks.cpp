// Blocks of a Graph are cut into routines with slots, frames and bundles.
#include "passes/cut/cut_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/op_table.h"
#include "graph/text.h"
#include "passes/cut/exchange_parts.h"
#include "passes/cut/routine_builder.h"

namespace plimsoll {
namespace {

/// An UpdateRun has either ops without a block, or ops with blocks, grouped by their parameter.
struct UpdateRun {
  std::vector<Op> whole;
  std::vector<std::pair<TensorId, std::vector<Op>>> of_tensors;
};

/// The parameter that an op of the update belongs to, if one of its operands says so.
std::optional<TensorId> parameter_of(const Graph& graph, const Op& op) {
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    for (TensorId id : *ids) {
      const Tensor& tensor = graph.at(id);
      if (tensor.arena) continue;
      if (tensor.gradient_of) return tensor.gradient_of;
      if (tensor.role == TensorRole::parameter) return id;
    }
  }
  return std::nullopt;
}

/// Returns whether an op comes before the first micro-batch: scalars of the step, zeroed gradients.
bool begins_step(const Graph& graph, const Op& op) {
  if (op.phase != Phase::optimizer) return false;
  return op.kind == OpKind::begin_step ||
         (op.kind == OpKind::fill && graph.at(op.outputs[0]).role == TensorRole::gradient);
}

class RunCollector {
 public:
  explicit RunCollector(const Graph& graph) : graph_(graph) {}

  std::vector<UpdateRun> run() {
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::optimizer || begins_step(graph_, op)) continue;
      if (op.stream == Stream::mp || op.stream == Stream::data) continue;
      op.block ? add_to_tensor(op) : add_whole(op);
    }
    finish();
    return std::move(runs_);
  }

 private:
  void add_whole(const Op& op) {
    if (!run_.of_tensors.empty() || begins_parts(op)) finish();
    run_.whole.push_back(op);
  }

  /// Work of the host that copies overlap is issued part by part, and so are updates whose moments
  /// are in the host's memory.
  bool begins_parts(const Op& op) const {
    const bool pages = op.kind == OpKind::copy_to_device &&
                       graph_.at(op.outputs[0]).role == TensorRole::optimizer_state;
    const bool goes_on = !run_.whole.empty() && run_.whole.back().kind == op.kind;
    return op.stream == Stream::to_host || (pages && !goes_on);
  }

  void add_to_tensor(const Op& op) {
    if (!run_.whole.empty()) finish();
    // An op without a link works on the output of the op before it.
    auto& tensors = run_.of_tensors;
    const TensorId parameter =
        parameter_of(graph_, op).value_or(tensors.empty() ? op.outputs[0] : tensors.back().first);
    const auto known = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& entry) { return entry.first == parameter; });
    if (known != tensors.end() && known + 1 != tensors.end()) finish();
    if (tensors.empty() || tensors.back().first != parameter) tensors.push_back({parameter, {}});
    tensors.back().second.push_back(op);
  }

  void finish() {
    if (run_.whole.empty() && run_.of_tensors.empty()) return;
    runs_.push_back(std::move(run_));
    run_ = {};
  }

  const Graph& graph_;
  UpdateRun run_;
  std::vector<UpdateRun> runs_;
};

/// Returns the ops of the update in order. A run of ops with blocks ends where a parameter comes up
/// again after others. A run of ops without a block ends where ops begin that are issued part by
/// part. So all norms come before all scalings, and these before all updates.
/// Collectives over ranges of the arenas (streams data and mp) are left out, since they are calls
/// of the schedule.
std::vector<UpdateRun> update_runs(const Graph& graph) { return RunCollector(graph).run(); }

struct BackwardParts {
  std::vector<Op> input, weight;  ///< each in the order of `backward`
};

/// Adds to `needed` all values from which its members are computed. Returns which ops compute any
/// of them.
std::vector<bool> ancestors(const std::vector<Op>& ops, std::set<TensorId>& needed) {
  std::vector<bool> found(ops.size());
  for (std::size_t i = ops.size(); i-- > 0;) {
    const Op& op = ops[i];
    found[i] = std::any_of(op.outputs.begin(), op.outputs.end(),
                           [&](TensorId id) { return needed.contains(id); });
    if (!found[i]) continue;
    needed.insert(op.inputs.begin(), op.inputs.end());
    for (std::size_t o = 0; o < op.outputs.size(); ++o) {
      if (accumulates(op, o)) needed.insert(op.outputs[o]);  // what it adds to
    }
  }
  return found;
}

/// Returns the outputs of ops outside `input` that read values which ops of `input` overwrite.
std::vector<TensorId> overtaken(const Graph& graph, const std::vector<Op>& ops,
                                const std::vector<bool>& input) {
  std::set<TensorId> overwritten;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::optional<std::size_t> reused = in_place(ops[i], graph.tensors);
    if (input[i] && reused) overwritten.insert(ops[i].inputs[*reused]);
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (input[i]) continue;
    const bool reads = std::any_of(ops[i].inputs.begin(), ops[i].inputs.end(),
                                   [&](TensorId id) { return overwritten.contains(id); });
    if (reads) return ops[i].outputs;
  }
  return {};
}

/// Cuts `backward`, which is in issue order. Ops that lead only to gradients of parameters go to
/// `weight` (W of Qi et al. 2023, arXiv 2401.10241) and get Phase::backward_weight. Ops on which
/// the gradient of the block's input depends stay in `input` (B in that paper). So does any op that
/// must run before an op of `input` overwrites its operands. An op that gives both kinds of
/// gradients, as the backward of a norm does, stays whole in `input`. For a block without an input
/// all ops go to `weight`.
BackwardParts split_backward(const Graph& graph, BlockId block, const std::vector<Op>& backward) {
  std::set<TensorId> needed;
  if (const auto gradient = graph.at(block).input_gradient) needed.insert(*gradient);
  std::vector<bool> input = ancestors(backward, needed);
  const auto more = [&] { return overtaken(graph, backward, input); };
  for (auto outputs = more(); !outputs.empty(); outputs = more()) {
    needed.insert(outputs.begin(), outputs.end());
    input = ancestors(backward, needed);
  }
  BackwardParts parts;
  for (std::size_t i = 0; i < backward.size(); ++i) {
    (input[i] ? parts.input : parts.weight).push_back(backward[i]);
    if (!input[i] && backward[i].phase == Phase::backward) {
      parts.weight.back().phase = Phase::backward_weight;
    }
  }
  return parts;
}

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

/// Lays out the frozen parameters, in two ranges that any number of shards divides.
void lay_out_frozen(const Graph& graph, BlockId block, std::int64_t alignment, CutBlock& cut) {
  constexpr std::int64_t kWidest = 4;  // bytes of an element
  const auto is_tied = [&](TensorId id) {
    return std::ranges::any_of(graph.tensors, [&](const Tensor& t) { return t.tied_to == id; });
  };
  for (const bool tied : {false, true}) {
    if (tied) cut.tied_begin = cut.frozen_bytes;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.role != TensorRole::frozen_parameter || tensor.tied_to || tensor.block != block ||
          is_tied(TensorId(i)) != tied)
        continue;
      cut.frozen.push_back({TensorId(i), cut.frozen_bytes});
      cut.frozen_bytes += round_up(bytes_of(tensor), kBlockAlignment);
    }
    cut.frozen_bytes = Bytes(padded(cut.frozen_bytes.count(), alignment * kWidest));
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

/// Moves what the host's memory may hold out of the other lists: the largest of the tensors that a
/// layer keeps for backward, as far as each fits in what is left of the share.
void choose_offloaded(const Graph& graph, BlockId block, const BackwardParts& backward,
                      std::int64_t percent, Crossing& crossing, CutBlock& cut) {
  if (percent == 0 || graph.at(block).kind != BlockKind::layer) return;
  std::vector<TensorId> kept = crossing.saved;
  kept.insert(kept.end(), crossing.saved_for_weights.begin(), crossing.saved_for_weights.end());
  const auto reads_input = [&](const Op& op) {
    return std::ranges::find(op.inputs, *graph.at(block).input) != op.inputs.end();
  };
  const bool again = graph.at(block).input && (std::ranges::any_of(backward.input, reads_input) ||
                                               std::ranges::any_of(backward.weight, reads_input));
  if (again) kept.push_back(*graph.at(block).input);
  const auto size_of = [&](TensorId id) { return bytes_of(graph.at(id)); };
  Bytes all;
  for (const TensorId id : kept) all += size_of(id);
  Bytes left((all * percent).count() / 100);
  std::ranges::stable_sort(kept, std::greater(), size_of);
  std::erase_if(kept, [&](TensorId id) {
    if (size_of(id) > left) return true;
    left = left - size_of(id);
    return false;
  });
  cut.offloads_input = again && std::erase(kept, *graph.at(block).input) > 0;
  for (auto* list : {&crossing.saved, &crossing.saved_for_weights}) {
    std::erase_if(*list, [&](TensorId id) { return std::ranges::find(kept, id) != kept.end(); });
  }
  crossing.offloaded = std::move(kept);
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

std::string print(const CutGraph& cut) {
  std::string text;
  std::size_t index = 0;
  for (const CutBlock& block : cut.blocks) {
    text += fmt::format("bundle elements={}", block.bundle_elements);
    for (const BundleEntry& entry : block.bundle) {
      text += fmt::format(" %{}:{}+{}", entry.parameter.index(), entry.offset, entry.elements);
    }
    text += "\n";
    for (const Routine* routine :
         {&block.weight_copies, &block.forward, &block.backward, &block.weight_gradient}) {
      const bool always = routine == &block.forward || routine == &block.backward;
      if (!always && routine->ops.empty()) continue;
      text += print(*routine, index++);
    }
    for (const auto* parts : {&block.forward_parts, &block.backward_parts}) {
      for (const RoutinePart& part : *parts) text += print(part.routine, index++);
    }
    text += "\n";
  }
  text += print(cut.begin_step, index++);
  for (const UpdatePart& part : cut.update) {
    if (part.each.empty()) text += print(part.routine, index++);
    for (const ParameterRoutine& each : part.each) text += print(each.routine, index++);
  }
  return text;
}

CutBlock cut_block(const Graph& graph, BlockId block, std::int64_t alignment,
                   const CutChoices& choices,
                   const std::function<std::vector<Op>(std::vector<Op>)>& rewrite) {
  CutBlock target;
  const BlockId home = graph.at(block).variant_of.value_or(block);
  lay_out_bundle(graph, home, alignment, choices.resident, target);
  lay_out_frozen(graph, home, alignment, target);
  std::vector<Op> forward, copies;
  BackwardParts backward;
  for (const Op& op : graph.ops) {
    if (op.block != block || op.phase == Phase::optimizer) continue;
    if (op.phase != Phase::forward || graph.at(block).parts > 1) {
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
  choose_offloaded(graph, block, backward, choices.offload_percent, crossing, target);
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
