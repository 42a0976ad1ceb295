// Ranks receive values of parameters that they do not own.
#include "passes/owners/broadcast_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "passes/graph/parameter_casts.h"
#include "passes/strategy/sharding_rules.h"

namespace plimsoll {
namespace {

/// Returns, for each tensor that ops read, the value that is received: a parameter, or the twin for
/// all its casts to that type.
std::map<TensorId, TensorId> received_values(const Graph& graph) {
  std::map<TensorId, TensorId> received;
  std::map<TensorId, TensorId> twins;  // by parameter
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::optimizer) continue;
    if (casts_parameter(graph, op)) {
      const TensorId parameter = owner_of(graph, op.inputs[0]);
      const TensorId twin = twins.try_emplace(parameter, op.outputs[0]).first->second;
      const bool alias = graph.at(twin).dtype == graph.at(op.outputs[0]).dtype;
      received[op.outputs[0]] = alias ? twin : parameter;
      continue;
    }
    for (const TensorId id : op.inputs) {
      if (is_parameter(graph.at(id))) received[id] = owner_of(graph, id);
    }
  }
  return received;
}

/// Returns whether an op reads received values. A broadcast or a cast does not, since its operand
/// is the value itself.
bool reads_values(const Graph& graph, const Op& op) {
  return op.phase != Phase::optimizer && op.kind != OpKind::broadcast &&
         !casts_parameter(graph, op);
}

}  // namespace

std::vector<UseBroadcast> broadcasts_by_use(const Graph& graph) {
  const std::map<TensorId, TensorId> received = received_values(graph);
  std::vector<UseBroadcast> broadcasts;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (!reads_values(graph, op)) continue;
    std::set<TensorId> values;
    for (const TensorId id : op.inputs) {
      if (const auto of = received.find(id); of != received.end()) values.insert(of->second);
    }
    for (const TensorId value : values) broadcasts.push_back({value.index(), i, i});
  }
  return broadcasts;
}

std::vector<std::vector<UseBroadcast>> broadcasts_by_segment(
    std::span<const UseBroadcast> by_use, const std::function<Bytes(std::size_t)>& size,
    Bytes limit) {
  std::vector<std::vector<UseBroadcast>> segments;  // the last first
  Bytes collected;
  for (std::size_t i = by_use.size(); i-- > 0;) {
    const UseBroadcast& use = by_use[i];
    const bool next_place = i + 1 == by_use.size() || use.first != by_use[i + 1].first;
    if (next_place && (segments.empty() || collected >= limit)) {
      segments.emplace_back();
      collected = Bytes();
    }
    std::vector<UseBroadcast>& open = segments.back();
    const auto same = std::find_if(open.begin(), open.end(), [&](const UseBroadcast& other) {
      return other.value == use.value;
    });
    if (same != open.end()) {
      same->first = use.first;
    } else {
      open.push_back(use);
      collected += size(use.value);
    }
  }
  std::reverse(segments.begin(), segments.end());
  for (std::vector<UseBroadcast>& segment : segments) {
    std::sort(segment.begin(), segment.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, a.value) < std::pair(b.first, b.value);
    });
  }
  return segments;
}

bool broadcast_parameters(Graph& graph, const PassContext& context) {
  const Strategy& strategy = context.strategy;
  if (strategy.gathers.unit != ParameterGather::use) return false;
  const std::map<TensorId, TensorId> received = received_values(graph);
  std::map<std::size_t, std::vector<Op>> before;  // by op
  for (const UseBroadcast& use : broadcasts_by_use(graph)) {
    const TensorId parameter = *parameter_of(graph, TensorId(use.value));
    if (elements(graph.at(parameter).shape) <= resident_limit(strategy)) continue;
    Op& reader = graph.ops[use.first];
    std::optional<TensorId> read, copy;
    for (TensorId& id : reader.inputs) {
      const auto value = received.find(id);
      if (value == received.end() || value->second.index() != use.value) continue;
      if (!copy) {
        read = id;
        Tensor tensor = graph.at(id);
        tensor.name = fmt::format("{}.received{}", graph.at(parameter).name, graph.tensors.size());
        tensor.role = TensorRole::communication;
        tensor.block = reader.block;
        tensor.tied_to.reset();
        copy = graph.add(std::move(tensor));
      }
      INVARIANT(id == *read, "an op reads two casts of " + graph.at(parameter).name);
      id = *copy;
    }
    Op op;
    op.kind = OpKind::broadcast;
    op.phase = reader.phase;
    op.stream = Stream::data;
    op.block = reader.block;
    op.inputs = {*read};
    op.outputs = {*copy};
    op.params = CollectiveParams{Group{{Axis::sharding}}, Reduction::sum};
    before[use.first].push_back(std::move(op));
  }
  if (before.empty()) return false;  // all parameters are small enough to stay whole
  std::vector<Op> ops;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    // All of them at once only where some stay whole.
    const Op& op = graph.ops[i];
    const bool whole = op.kind == OpKind::broadcast && !op.block && op.phase == Phase::forward;
    if (whole && resident_limit(strategy) == 0) continue;
    if (const auto found = before.find(i); found != before.end()) {
      ops.insert(ops.end(), found->second.begin(), found->second.end());
    }
    ops.push_back(op);
  }
  graph.ops = std::move(ops);
  return true;
}

}  // namespace plimsoll
