#include "simulator/routine_map.h"

#include <algorithm>
#include <optional>

namespace plimsoll {
namespace {

/// Delay from each input, where the value depends on it.
using Delays = std::vector<std::optional<Picoseconds>>;

void take_latest(Delays& into, const Delays& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void add(Delays& delays, Picoseconds time) {
  for (auto& delay : delays) {
    if (delay) *delay += time;
  }
}

void add_row(RoutineMap& map, const Delays& delays) {
  for (std::uint32_t i = 0; i < delays.size(); ++i) {
    if (delays[i]) map.terms.push_back({i, *delays[i]});
  }
  map.row_end.push_back(std::uint32_t(map.terms.size()));
}

}  // namespace

RoutineMap compose(std::span<const RoutineOp> ops, std::span<const std::uint32_t> event_ops) {
  RoutineMap map;
  for (const RoutineOp& op : ops) map.streams.push_back(op.stream);
  std::sort(map.streams.begin(), map.streams.end());
  map.streams.erase(std::unique(map.streams.begin(), map.streams.end()), map.streams.end());

  const std::size_t inputs = map.inputs();
  std::vector<Delays> clocks, ends;
  Delays host(inputs);
  host[RoutineMap::kIssued] = Picoseconds(0);
  std::vector<bool> used(map.streams.size());
  for (std::size_t s = 0; s < map.streams.size(); ++s) {
    clocks.emplace_back(inputs)[RoutineMap::kClocks + s] = Picoseconds(0);
  }
  for (const RoutineOp& op : ops) {
    const auto at = std::lower_bound(map.streams.begin(), map.streams.end(), op.stream);
    const auto s = std::size_t(at - map.streams.begin());
    map.dispatch += op.dispatch;
    add(host, op.dispatch);
    Delays& clock = clocks[s];
    take_latest(clock, host);
    if (!used[s])
      clock[RoutineMap::kAwaited] = std::max(clock[RoutineMap::kAwaited], {Picoseconds(0)});
    used[s] = true;
    for (std::uint32_t wait : op.waits) take_latest(clock, ends[wait]);
    add(clock, op.duration);
    ends.push_back(clock);
    if (!op.host_wait) continue;
    map.host_waits = true;
    take_latest(host, clock);
    add(host, *op.host_wait);
  }
  Delays all(inputs);
  for (const Delays& clock : clocks) {
    add_row(map, clock);
    take_latest(all, clock);
  }
  add_row(map, all);
  for (std::uint32_t op : event_ops) add_row(map, ends[op]);
  if (map.host_waits) add_row(map, host);
  map.events = std::uint32_t(1 + event_ops.size() + (map.host_waits ? 1 : 0));
  return map;
}

bool apply(const RoutineMap& map, std::span<const Picoseconds> inputs,
           std::span<Picoseconds> rows) {
  std::uint32_t term = 0;
  bool held_up = false;
  for (std::size_t row = 0; row < map.row_end.size(); ++row) {
    Picoseconds issued, latest;
    // It is the first input, so the first term where there is one.
    if (term < map.row_end[row] && map.terms[term].input == RoutineMap::kIssued) {
      issued = inputs[RoutineMap::kIssued] + map.terms[term++].delay;
    }
    for (; term < map.row_end[row]; ++term) {
      latest = std::max(latest, inputs[map.terms[term].input] + map.terms[term].delay);
    }
    held_up = held_up || issued > latest;
    rows[row] = std::max(issued, latest);
  }
  return held_up;
}

}  // namespace plimsoll
