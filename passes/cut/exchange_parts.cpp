// Finds where to cut a routine, what crosses these cuts, and what the parts wait for.
#include "passes/cut/exchange_parts.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "graph/op_table.h"

namespace plimsoll {

namespace {

/// Sets of tensors that share storage, because ops work in place.
class SharedStorage {
 public:
  SharedStorage(const Graph& graph, const std::vector<std::vector<Op>>& parts)
      : first_(graph.tensors.size()) {
    std::iota(first_.begin(), first_.end(), std::size_t{0});
    for (const std::vector<Op>& ops : parts) {
      for (const Op& op : ops) {
        if (const auto reused = in_place(op, graph.tensors))
          first_[find(op.outputs[0].index())] = find(op.inputs[*reused].index());
      }
    }
  }
  std::size_t of(TensorId id) const { return find(id.index()); }

 private:
  std::size_t find(std::size_t i) const {
    while (first_[i] != i) i = first_[i];
    return i;
  }
  std::vector<std::size_t> first_;  // by tensor: another tensor of its set
};

struct Storage {
  std::set<TensorId> tensors;
  std::size_t first_part = 0, last_part = 0;
};

std::map<std::size_t, Storage> storages_of(const Graph& graph,
                                           const std::vector<std::vector<Op>>& parts) {
  const SharedStorage shared(graph, parts);
  std::map<std::size_t, Storage> found;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    for (const Op& op : parts[p]) {
      for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (const TensorId id : *ids) {
          const auto [storage, fresh] = found.try_emplace(shared.of(id));
          if (fresh) storage->second.first_part = p;
          storage->second.last_part = p;
          storage->second.tensors.insert(id);
        }
      }
    }
  }
  return found;
}

/// Returns which ops of a part are communications for which no op of the part waits.
std::vector<bool> under_way(const std::vector<Op>& ops) {
  std::map<TensorId, std::size_t> producer;
  std::array<std::optional<std::size_t>, kStreams> awaited;  // the last op that another waits for
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (const TensorId id : ops[i].inputs) {
      const auto found = producer.find(id);
      if (found == producer.end() || ops[found->second].stream == ops[i].stream) continue;
      auto& last = awaited[std::size_t(ops[found->second].stream)];
      last = std::max(last.value_or(0), found->second);
    }
    for (const TensorId id : ops[i].outputs) producer[id] = i;
  }
  std::vector<bool> found;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto& last = awaited[std::size_t(ops[i].stream)];
    found.push_back(ops[i].stream != Stream::compute && (!last || i > *last));
  }
  return found;
}

/// Tensors that communications move while one part ends and another begins.
struct Travelling {
  std::set<TensorId> moved;    ///< operands of all these communications
  std::set<TensorId> awaited;  ///< results that a later part reads
};

Travelling travelling_between(const std::vector<std::vector<Op>>& parts) {
  Travelling found;
  std::set<TensorId> read_later;
  for (std::size_t p = parts.size(); p-- > 0;) {
    const std::vector<bool> travels = under_way(parts[p]);
    for (std::size_t i = 0; i < parts[p].size(); ++i) {
      const Op& op = parts[p][i];
      if (op.stream == Stream::compute) continue;
      for (const TensorId id : op.outputs) {
        if (read_later.contains(id)) found.awaited.insert(id);
      }
      if (!travels[i] || p + 1 == parts.size()) continue;
      found.moved.insert(op.inputs.begin(), op.inputs.end());
      found.moved.insert(op.outputs.begin(), op.outputs.end());
    }
    for (const Op& op : parts[p]) read_later.insert(op.inputs.begin(), op.inputs.end());
  }
  return found;
}

/// Returns the port of the last op on a stream that writes a tensor which `reads` has.
std::optional<std::size_t> last_port(const Routine& routine, Stream stream,
                                     const std::set<TensorId>& reads,
                                     const std::vector<TensorId>& written) {
  std::optional<std::size_t> last;
  for (std::size_t p = 0; p < routine.ports.size(); ++p) {
    const std::uint32_t op = routine.ports[p].op;
    if (routine.ops[op].stream != stream || !reads.contains(written[op])) continue;
    if (!last || op > routine.ports[*last].op) last = p;
  }
  return last;
}

}  // namespace

std::vector<std::vector<Op>> parts_at_exchanges(const std::vector<Op>& ops) {
  std::vector<std::vector<Op>> parts(1);
  std::set<TensorId> travel;
  for (const Op& op : ops) {
    const bool exchanges = op.stream == Stream::experts;
    const bool waits = !exchanges && std::ranges::any_of(op.inputs, [&](TensorId id) {
      return travel.contains(id);
    });
    if (waits) {
      parts.emplace_back();
      travel.clear();
    }
    if (exchanges) travel.insert(op.outputs.begin(), op.outputs.end());
    parts.back().push_back(op);
  }
  return parts;
}

Crossing with_carried(const Graph& graph, const Crossing& crossing,
                      const std::vector<std::vector<Op>>& parts, const RoutineBuilder& whole) {
  Crossing all = crossing;
  const Travelling travelling = travelling_between(parts);
  all.awaited = travelling.awaited;
  for (const auto& [first, storage] : storages_of(graph, parts)) {
    // A transfer that is under way when its part ends still uses its operands.
    const bool is_moved = std::ranges::any_of(
        storage.tensors, [&](TensorId id) { return travelling.moved.contains(id); });
    if (storage.first_part == storage.last_part && !is_moved) continue;
    const auto placed = std::ranges::find_if(
        storage.tensors, [&](TensorId id) { return whole.outlives_the_call(id); });
    const auto largest = std::ranges::max_element(
        storage.tensors, {}, [&](TensorId id) { return bytes_of(graph.at(id)); });
    const bool is_placed = placed != storage.tensors.end();
    const TensorId place = is_placed ? *placed : *largest;
    if (!is_placed) all.carried.push_back(place);
    for (const TensorId id : storage.tensors) {
      if (id != place && !whole.outlives_the_call(id)) all.lies_as.emplace(id, place);
    }
  }
  return all;
}

std::vector<RoutinePart> with_waits(const std::vector<std::vector<Op>>& parts,
                                    std::vector<Routine> routines) {
  std::vector<RoutinePart> all(parts.size());
  for (std::size_t q = 0; q < parts.size(); ++q) {
    std::set<TensorId> reads;
    for (const Op& op : parts[q]) reads.insert(op.inputs.begin(), op.inputs.end());
    for (std::size_t p = 0; p < q; ++p) {
      std::vector<TensorId> written;  // by op
      for (const Op& op : parts[p]) written.push_back(op.outputs.at(0));
      for (std::size_t stream = 0; stream < kStreams; ++stream) {
        if (Stream(stream) == Stream::compute) continue;
        const auto port = last_port(routines[p], Stream(stream), reads, written);
        if (port) all[q].waits.push_back({p, *port});
      }
    }
  }
  for (std::size_t q = 0; q < parts.size(); ++q) all[q].routine = std::move(routines[q]);
  return all;
}

}  // namespace plimsoll
