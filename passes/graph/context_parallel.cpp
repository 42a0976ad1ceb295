// The first half of context parallelism: each rank of a group of cp has a part of every sequence.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"

namespace plimsoll {

namespace {

void divide(std::int64_t& extent, std::int64_t degree, const std::string& name) {
  INVARIANT(extent % degree == 0, name + " does not split by tokens");
  extent /= degree;
}

/// Gives rows of experts their number. With a capacity each rank may keep all that is kept, of
/// which it is expected to have its share.
void resize_rows(Graph& graph, TensorId id, std::int64_t most, std::int64_t degree) {
  Tensor& rows = graph.at(id);
  rows.filled = double(rows.shape[0]) / double(degree) / double(std::min(most, rows.shape[0]));
  rows.shape[0] = std::min(most, rows.shape[0]);
}

/// Counts and limits of choices are those of whole sequences, so these ops get the choices of all
/// ranks that share them.
void gather_choices(Graph& graph, std::int64_t degree) {
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    if (op.kind == OpKind::limit_choices) {
      Tensor all = graph.at(op.inputs[0]);
      all.name += ".of_sequences";
      all.shape[0] *= degree;
      ops.push_back(op_near(op, OpKind::all_gather, {op.inputs[0]}, {graph.add(std::move(all))},
                            CollectiveParams{Group{{Axis::cp}}}, Stream::context));
      op.inputs = ops.back().outputs;
      std::get<LimitParams>(op.params).ranks = degree;
    }
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
}

}  // namespace

bool context_parallel(Graph& graph, const PassContext& context) {
  const std::int64_t degree = context.strategy.cp;
  if (degree == 1) return false;
  graph.grid.degree[std::size_t(Axis::cp)] = degree;
  // The dimension of tokens, mostly rows; or none.
  std::vector<std::optional<std::size_t>> tokens(graph.tensors.size(), 0);
  std::set<TensorId> rows;  // of experts
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::flash_attention || op.kind == OpKind::add_sinks)
      tokens[op.outputs[1].index()] = 2;                                          // [b,a,s]
    if (op.kind == OpKind::limit_choices) tokens[op.outputs[0].index()].reset();  // [b,e]
    if (op.kind == OpKind::unpack_weight) tokens[op.outputs[0].index()].reset();
    if (op.kind == OpKind::place_choices) tokens[op.outputs[1].index()].reset();  // [e]
    const bool reads_rows =
        std::ranges::any_of(op.inputs, [&](TensorId id) { return rows.contains(id); });
    if (op.kind == OpKind::dispatch_rows || (reads_rows && op.kind != OpKind::combine_rows))
      rows.insert(op.outputs.begin(), op.outputs.end());
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    Tensor& tensor = graph.tensors[i];
    if (!tensor.block || tensor.role != TensorRole::activation) continue;
    if (tokens[i] && !rows.contains(TensorId(i)))
      divide(tensor.shape[*tokens[i]], degree, tensor.name);
  }
  for (Op& op : graph.ops) {
    auto* place = std::get_if<PlaceParams>(&op.params);
    if (place == nullptr) continue;
    const std::int64_t choices = elements(graph.at(op.inputs[0]).shape);
    for (const TensorId id : rows) {
      if (graph.at(id).block == op.block) resize_rows(graph, id, choices, degree);
    }
    place->rows = std::min(place->rows, choices);
  }
  gather_choices(graph, degree);
  for (Op& op : graph.ops) {
    INVARIANT(op.kind != OpKind::softmax, "scores in memory need whole sequences");
    if (auto* data = std::get_if<DataParams>(&op.params)) divide(data->sequence, degree, "data");
    if (auto* rotary = std::get_if<RotaryParams>(&op.params))
      divide(rotary->sequence, degree, "positions");
    if (auto* rows = std::get_if<VocabularyParams>(&op.params); rows && rows->sequence > 0)
      divide(rows->sequence, degree, "rows");
    if (auto* attention = std::get_if<AttentionParams>(&op.params))
      divide(attention->sequence, degree, "attention");
  }
  return true;
}

}  // namespace plimsoll
