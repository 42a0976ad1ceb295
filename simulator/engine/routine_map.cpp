// Composes ops in max-plus algebra.
#include "simulator/engine/routine_map.h"

#include <algorithm>

namespace plimsoll {
namespace {

using Delay = std::optional<Picoseconds>;

void take_latest(std::span<Delay> into, std::span<const Delay> other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void add(std::span<Delay> delays, Picoseconds time) {
  for (Delay& delay : delays) {
    if (delay) *delay += time;
  }
}

/// Adds a row that is the latest of these.
void add_row(std::span<const Delay> delays, RoutineMap& map) {
  for (std::uint32_t i = 0; i < delays.size(); ++i) {
    if (delays[i]) map.terms.push_back({i, *delays[i]});
  }
  map.row_end.push_back(std::uint32_t(map.terms.size()));
}

}  // namespace

Composition::Composition(std::span<const RoutineOp> ops) {
  for (const RoutineOp& op : ops) map_.streams.push_back(op.stream);
  std::sort(map_.streams.begin(), map_.streams.end());
  map_.streams.erase(std::unique(map_.streams.begin(), map_.streams.end()), map_.streams.end());
  inputs_ = map_.inputs();
  clocks_.resize(map_.streams.size() * inputs_);
  ends_.resize(ops.size() * inputs_);
  host_.resize(inputs_);
  run(ops);
}

void Composition::run(std::span<const RoutineOp> ops) {
  host_[RoutineMap::kIssued] = Picoseconds(0);
  std::vector<bool> used(map_.streams.size());
  for (std::size_t s = 0; s < map_.streams.size(); ++s) {
    clock(s)[RoutineMap::kClocks + s] = Picoseconds(0);
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const RoutineOp& op = ops[i];
    const auto at = std::lower_bound(map_.streams.begin(), map_.streams.end(), op.stream);
    const auto s = std::size_t(at - map_.streams.begin());
    map_.dispatch += op.dispatch;
    add(host_, op.dispatch);
    const Delays clock = this->clock(s);
    take_latest(clock, host_);
    Delay& awaited = clock[RoutineMap::kAwaited];
    if (!used[s]) awaited = std::max(awaited, Delay(Picoseconds(0)));
    used[s] = true;
    for (std::uint32_t wait : op.waits) take_latest(clock, end(wait));
    add(clock, op.duration);
    std::copy(clock.begin(), clock.end(), end(i).begin());
    if (!op.host_wait) continue;
    map_.host_waits = true;
    take_latest(host_, clock);
    add(host_, *op.host_wait);
  }
}

RoutineMap Composition::map(std::span<const std::uint32_t> event_ops) const {
  const auto row = [&](const std::vector<Delay>& of, std::size_t index) {
    return std::span(of).subspan(index * inputs_, inputs_);
  };
  RoutineMap map = map_;
  std::vector<Delay> all(inputs_);
  for (std::size_t s = 0; s < map.streams.size(); ++s) {
    add_row(row(clocks_, s), map);
    take_latest(all, row(clocks_, s));
  }
  add_row(all, map);
  for (std::uint32_t op : event_ops) add_row(row(ends_, op), map);
  if (map.host_waits) add_row(host_, map);
  map.events = std::uint32_t(1 + event_ops.size() + (map.host_waits ? 1 : 0));
  return map;
}

}  // namespace plimsoll
