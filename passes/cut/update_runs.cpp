// Ops of the update are collected into runs.
#include "passes/cut/update_runs.h"

#include <algorithm>
#include <optional>

namespace plimsoll {

namespace {

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
    // Work of the host that copies overlap is issued part by part.
    if (!run_.of_tensors.empty() || op.stream == Stream::to_host) finish();
    run_.whole.push_back(op);
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

}  // namespace

bool begins_step(const Graph& graph, const Op& op) {
  if (op.phase != Phase::optimizer) return false;
  return op.kind == OpKind::begin_step ||
         (op.kind == OpKind::fill && graph.at(op.outputs[0]).role == TensorRole::gradient);
}

std::vector<UpdateRun> update_runs(const Graph& graph) { return RunCollector(graph).run(); }

}  // namespace plimsoll
