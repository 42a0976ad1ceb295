// Parameters get the type of the computation, and masters are added.
#include <algorithm>
#include <map>
#include <set>

#include "graph/op_table.h"
#include "passes/graph/parameter_casts.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/strategy/precision_rules.h"

namespace plimsoll {

namespace {

bool once_per_step(const Op& op) { return op.phase == Phase::optimizer; }

/// A CastOnly finds the parameters that only casts to one type read, the job's type or 8 bits. Tied
/// parameters share storage, so this must hold for all of them.
class CastOnly {
 public:
  CastOnly(const Graph& graph, DType type) : graph_(graph), type_(type) {
    for (const ParameterRead& found : parameters_read(graph)) {
      const DType twin = found.twin ? graph.at(*found.twin).dtype : DType::f32;
      const bool to_type = twin == type || twin == DType::e4m3;
      if (!to_type || found.other_uses > 0) read_.insert(found.parameter);
      if (twin == DType::e4m3) eight_.insert(found.parameter);
    }
  }

  DType type_of(TensorId id) const {
    return eight_.contains(graph_.at(id).tied_to.value_or(id)) ? DType::e4m3 : type_;
  }

  bool contains(TensorId id) const {
    const Tensor& tensor = graph_.at(id);
    return tensor.role == TensorRole::parameter && !tensor.arena &&
           !read_.contains(tensor.tied_to.value_or(id));
  }

 private:
  const Graph& graph_;
  const DType type_;
  std::set<TensorId> read_;   // as they are
  std::set<TensorId> eight_;  // in 8 bits
};

class CastMover {
 public:
  CastMover(Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), type_(context.job.precision) {}

  bool run() {
    const CastOnly cast_only(graph_, type_);
    if (!choose(cast_only)) return false;
    std::vector<DType> types;
    for (std::size_t i = 0; i < moved_.size(); ++i) types.push_back(cast_only.type_of(TensorId(i)));
    delete_casts();
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      if (moved_[i]) graph_.tensors[i].dtype = types[i];
    }
    for (const Op& op : graph_.ops) {  // into memory of its own, in stage 3
      if (communicates(op.kind) && !op.block && moved_[op.inputs[0].index()])
        graph_.at(op.outputs[0]).dtype = type_;
    }
    if (context_.strategy.precision.main_parameters != MasterType::none) keep_masters();
    remove_unused_tensors(graph_);
    return true;
  }

 private:
  /// Marks the parameters whose casts move, and their arena where all of them do.
  bool choose(const CastOnly& cast_only) {
    bool any = false, all = true;
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      const Tensor& tensor = graph_.tensors[i];
      moved_.push_back(cast_only.contains(TensorId(i)));
      if (tensor.role != TensorRole::parameter || tensor.arena) continue;
      any = any || moved_.back();
      all = all && moved_.back();
    }
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      const Tensor& tensor = graph_.tensors[i];
      if (!tensor.arena || tensor.role != TensorRole::parameter) continue;
      if (!all && is_updated(TensorId(i))) return false;  // an op on an arena has one type
      moved_[i] = any;
    }
    return any;
  }

  /// Returns whether the update works on the arena, and not tensor by tensor.
  bool is_updated(TensorId arena) const {
    return std::any_of(graph_.ops.begin(), graph_.ops.end(), [&](const Op& op) {
      return once_per_step(op) && !communicates(op.kind) &&
             std::find(op.outputs.begin(), op.outputs.end(), arena) != op.outputs.end();
    });
  }

  /// Deletes the casts of moved parameters. Their readers read the parameters.
  void delete_casts() {
    std::map<TensorId, TensorId> original;
    for (const Op& op : graph_.ops) {
      if (op.kind == OpKind::cast && !once_per_step(op) && moved_[op.inputs[0].index()])
        original.emplace(op.outputs[0], op.inputs[0]);
    }
    std::erase_if(graph_.ops, [&](const Op& op) {
      return op.kind == OpKind::cast && original.contains(op.outputs[0]);
    });
    for (Op& op : graph_.ops) rename(op.inputs, original);
  }

  /// Lets the update work on masters of the parameters that the rank updates. Ranks afterwards
  /// exchange the parameters.
  void keep_masters() {
    std::map<TensorId, TensorId> masters;        // by parameter
    std::map<TensorId, std::size_t> last_write;  // op, by parameter
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!once_per_step(graph_.ops[i]) || communicates(graph_.ops[i].kind)) continue;
      const std::vector<TensorId> inputs = graph_.ops[i].inputs;
      for (TensorId id : inputs) {
        if (moved_[id.index()]) masters.try_emplace(id, id);
      }
      for (TensorId id : graph_.ops[i].outputs) {
        if (moved_[id.index()]) last_write[id] = i;
      }
    }
    for (auto& [parameter, master] : masters) master = add_master(parameter, last_write);
    for (Op& op : graph_.ops) {
      if (!once_per_step(op) || communicates(op.kind)) continue;
      rename(op.inputs, masters);
      rename(op.outputs, masters);
    }
    write_parameters(masters, last_write);
  }

  /// Adds the masters of the parameters that this rank updates. They are as large as the
  /// optimizer's state.
  TensorId add_master(TensorId parameter, const std::map<TensorId, std::size_t>& last_write) {
    Tensor master;
    master.name =
        graph_.at(parameter).arena ? "master_parameters" : graph_.at(parameter).name + ".master";
    master.role = TensorRole::master_parameter;
    master.dtype = master_dtype(context_.strategy);
    master.shape = graph_.at(parameter).shape;
    master.block = graph_.at(parameter).block;
    master.split = graph_.at(parameter).split;
    master.arena = graph_.at(parameter).arena;
    if (const auto found = last_write.find(parameter); master.arena && found != last_write.end()) {
      const std::vector<TensorId>& inputs = graph_.ops[found->second].inputs;
      const auto state = std::ranges::find_if(
          inputs, [&](TensorId id) { return graph_.at(id).role == TensorRole::optimizer_state; });
      if (state != inputs.end()) master.shape = graph_.at(*state).shape;
    }
    return graph_.add(std::move(master));
  }

  /// Writes the parameters by the update itself, or by a cast after it.
  void write_parameters(const std::map<TensorId, TensorId>& masters,
                        const std::map<TensorId, std::size_t>& last_write) {
    std::map<std::size_t, TensorId> written;  // parameter, by op
    for (const auto& [parameter, op] : last_write) written.emplace(op, parameter);
    std::vector<Op> ops;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      ops.push_back(std::move(graph_.ops[i]));
      const auto found = written.find(i);
      if (found == written.end()) continue;
      if (context_.strategy.optimizer.cast_placement == CastPlacement::fused) {
        ops.back().outputs.push_back(found->second);
        continue;
      }
      ops.push_back(op_of(Phase::optimizer, ops.back().block, OpKind::cast_parameters,
                          {masters.at(found->second)}, {found->second}));
    }
    graph_.ops = std::move(ops);
  }

  Graph& graph_;
  const PassContext& context_;
  const DType type_;
  std::vector<bool> moved_;  // by tensor
};

}  // namespace

bool place_casts(Graph& graph, const PassContext& context) {
  if (context.job.precision == DType::f32) return false;
  if (context.strategy.optimizer.cast_placement == CastPlacement::every_use) return false;
  return CastMover(graph, context).run();
}

}  // namespace plimsoll
