// Composes ops in max-plus algebra, and bundles the rows of the map.
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

/// Returns how much later `row` is than `base` whatever the inputs; nothing where that depends.
std::optional<Picoseconds> apart(std::span<const Delay> base, std::span<const Delay> row) {
  std::optional<Picoseconds> later;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (base[i].has_value() != row[i].has_value()) return std::nullopt;
    if (!row[i]) continue;
    if (later && *row[i] - *base[i] != *later) return std::nullopt;
    later = *row[i] - *base[i];
  }
  return later;
}

/// Rows in bundles: the first row of each, and how much later the others are.
struct Bundles {
  std::size_t inputs = 0;
  struct Row {
    std::size_t bundle = 0;
    Picoseconds later;
  };
  std::vector<std::span<const Delay>> first;  ///< row of each bundle
  std::vector<Row> rows;

  void add(std::span<const Delay> row) {
    for (std::size_t b = 0; b < first.size(); ++b) {
      if (const auto later = apart(first[b], row)) return rows.push_back({b, *later});
    }
    rows.push_back({first.size(), {}});
    first.push_back(row);
  }

  void write(RoutineMap& map) const {
    for (std::size_t b = 0; b < first.size(); ++b) {
      Picoseconds least;
      for (const Row& row : rows) {
        if (row.bundle == b) least = std::min(least, row.later);
      }
      for (std::uint32_t i = 0; i < inputs; ++i) {
        if (first[b][i]) map.terms.push_back({i, *first[b][i] + least});
      }
      for (std::uint32_t r = 0; r < rows.size(); ++r) {
        if (rows[r].bundle == b) map.rows.push_back({r, rows[r].later - least});
      }
      map.bundles.push_back({std::uint32_t(map.terms.size()), std::uint32_t(map.rows.size())});
    }
  }
};

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
  Bundles bundles;
  bundles.inputs = inputs_;
  for (std::size_t s = 0; s < map.streams.size(); ++s) {
    bundles.add(row(clocks_, s));
    take_latest(all, row(clocks_, s));
  }
  bundles.add(all);
  for (std::uint32_t op : event_ops) bundles.add(row(ends_, op));
  if (map.host_waits) bundles.add(host_);
  bundles.write(map);
  map.events = std::uint32_t(1 + event_ops.size() + (map.host_waits ? 1 : 0));
  return map;
}

}  // namespace plimsoll
