// Which values of parameters ranks that do not own them receive, and how often.
#include <algorithm>
#include <map>
#include <set>

#include "passes/ownership.h"

namespace plimsoll {
namespace {

bool is_parameter(const Tensor& tensor) {
  return tensor.role == TensorRole::parameter && !tensor.arena;
}

/// Whose memory a parameter is.
TensorId owner_of(const Graph& graph, TensorId id) { return graph.at(id).tied_to.value_or(id); }

bool casts_parameter(const Graph& graph, const Op& op) {
  return op.kind == OpKind::cast && is_parameter(graph.at(op.inputs[0]));
}

/// Ops that read a received value: by op, the values. Casts of parameters are the value itself.
std::map<std::size_t, std::set<TensorId>> readers(const Graph& graph) {
  std::map<TensorId, TensorId> received;  // a tensor that is read -> what is received for it
  std::map<TensorId, TensorId> twins;     // by parameter
  std::map<std::size_t, std::set<TensorId>> found;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.phase == Phase::optimizer) continue;
    if (casts_parameter(graph, op)) {
      const TensorId parameter = owner_of(graph, op.inputs[0]);
      const TensorId twin = twins.try_emplace(parameter, op.outputs[0]).first->second;
      const bool alias = graph.at(twin).dtype == graph.at(op.outputs[0]).dtype;
      received[op.outputs[0]] = alias ? twin : parameter;
      continue;
    }
    for (const TensorId id : op.inputs) {
      if (const auto of = received.find(id); of != received.end()) found[i].insert(of->second);
      if (is_parameter(graph.at(id))) found[i].insert(owner_of(graph, id));
    }
  }
  return found;
}

}  // namespace

std::vector<BroadcastParameter> find_broadcast_parameters(const Graph& graph) {
  std::map<TensorId, BroadcastParameter> found;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::optimizer) continue;
    for (const TensorId id : op.inputs) {
      if (!is_parameter(graph.at(id))) continue;
      const TensorId parameter = owner_of(graph, id);
      BroadcastParameter& entry =
          found.try_emplace(parameter, BroadcastParameter{parameter, {}, 0}).first->second;
      const bool cast = casts_parameter(graph, op);
      if (cast && !entry.twin) entry.twin = op.outputs[0];
      if (!cast || graph.at(op.outputs[0]).dtype != graph.at(*entry.twin).dtype) ++entry.other_uses;
    }
  }
  std::vector<BroadcastParameter> result;
  for (const auto& [parameter, entry] : found) result.push_back(entry);
  return result;
}

std::vector<UseBroadcast> broadcasts_by_use(const Graph& graph) {
  std::vector<UseBroadcast> broadcasts;
  for (const auto& [op, tensors] : readers(graph)) {
    for (const TensorId tensor : tensors) broadcasts.push_back({tensor.index(), op, op});
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

}  // namespace plimsoll
