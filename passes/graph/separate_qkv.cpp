// The linear layer of query, key and value is cut into three.
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "passes/graph/passes.h"

namespace plimsoll {

namespace {

constexpr std::array<const char*, 3> kParts = {"query", "key", "value"};

class Separator {
 public:
  explicit Separator(Graph& graph) : graph_(graph), readers_(graph.tensors.size()) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      for (TensorId id : graph.ops[i].inputs) readers_[id.index()].push_back(i);
    }
  }

  bool run() {
    std::vector<bool> replaced(graph_.ops.size());
    std::vector<Op> ops;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (replaced[i]) continue;
      const Op op = graph_.ops[i];
      const auto split = split_of(op);
      if (!split) {
        ops.push_back(op);
        continue;
      }
      replaced[*split] = true;
      separate(op, Op(graph_.ops[*split]), ops);
    }
    graph_.ops = std::move(ops);
    return changed_;
  }

 private:
  /// The op that alone reads this linear layer's result and splits it into query, key and value.
  std::optional<std::size_t> split_of(const Op& op) const {
    if (op.kind != OpKind::linear) return {};
    const std::vector<std::size_t>& readers = readers_[op.outputs[0].index()];
    if (readers.size() != 1) return {};
    const Op& split = graph_.ops[readers[0]];
    if (split.kind != OpKind::split_heads || split.outputs.size() != 3) return {};
    return readers[0];
  }

  void separate(const Op& linear, const Op& split, std::vector<Op>& ops) {
    changed_ = true;
    for (std::size_t part = kParts.size(); part-- > 0;) {
      Op own = linear;
      for (std::size_t i = 1; i < own.inputs.size(); ++i) {
        const bool weight = i == 1;
        own.inputs[i] =
            third_of(linear.inputs[i], part, weight ? 1 : 0, weight ? "weight" : "bias");
      }
      own.outputs = {third_of(linear.outputs[0], part, 1, "y")};
      Op heads = split;
      heads.inputs = own.outputs;
      heads.outputs = {split.outputs[part]};
      ops.push_back(std::move(own));
      ops.push_back(std::move(heads));
    }
  }

  /// Returns a tensor like this one with a third of its dimension `dim`, which is 3. The tensor
  /// itself becomes the first part, at the end.
  TensorId third_of(TensorId id, std::size_t part, std::size_t dim, const std::string& name) {
    Tensor tensor = graph_.at(id);
    INVARIANT(tensor.shape[dim] == 3, tensor.name + " is not of query, key and value");
    tensor.shape[dim] = 1;
    tensor.name = graph_.at(*tensor.block).name + "." + kParts[part] + "." + name;
    if (part > 0) return graph_.add(std::move(tensor));
    graph_.at(id) = std::move(tensor);
    return id;
  }

  Graph& graph_;
  std::vector<std::vector<std::size_t>> readers_;  // ops, by tensor
  bool changed_ = false;
};

}  // namespace

bool separate_qkv(Graph& graph) { return Separator(graph).run(); }

}  // namespace plimsoll
