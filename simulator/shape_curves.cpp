#include "simulator/shape_curves.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace plimsoll {
namespace {

double log_distance(std::int64_t a, std::int64_t b) {
  return std::abs(std::log(double(a) / double(b)));
}

/// The entry whose key is nearest on a logarithmic scale, the smaller of two.
template <class Map>
typename Map::const_iterator nearest_entry(const Map& map, std::int64_t key) {
  auto best = map.begin();
  for (auto at = map.begin(); at != map.end(); ++at) {
    if (log_distance(at->first, key) < log_distance(best->first, key)) best = at;
  }
  return best;
}

Estimate longer(Estimate estimate, double times, Provenance at_least) {
  estimate.time = estimate.time * times;
  estimate.spread = estimate.spread * times;
  estimate.provenance = std::max(estimate.provenance, at_least);
  return estimate;
}

Estimate contended(const std::map<std::int64_t, SizeCurve>& by_at_once, std::int64_t at_once,
                   Bytes payload) {
  const auto [most, last] = *by_at_once.rbegin();
  if (by_at_once.begin()->first > at_once) {  // only more at once than asked for
    return longer(by_at_once.begin()->second.at(payload), 1, Provenance::extrapolated);
  }
  std::optional<Estimate> slowest;
  for (const auto& [groups, curve] : by_at_once) {
    if (groups > at_once) break;
    const Estimate estimate = curve.at(payload);
    if (!slowest || estimate.time >= slowest->time) slowest = estimate;
  }
  if (by_at_once.contains(at_once)) return *slowest;
  const double beyond = std::max(1.0, double(at_once) / double(most));
  return longer(*slowest, beyond, Provenance::extrapolated);
}

}  // namespace

void ShapeCurves::add(const CollectivePoint& point) {
  const bool across = point.nodes > 1;
  const std::int64_t per_node = across ? point.ranks / point.nodes : 1;
  const std::int64_t size = across ? point.nodes : point.ranks;
  curves_[{point.kind, across}][per_node][size][point.groups_per_node].add(point.payload,
                                                                           point.time);
  has_contention_ = has_contention_ || point.groups_per_node > 1;
}

std::optional<Estimate> ShapeCurves::at(OpKind kind, Bytes payload,
                                        const GroupSpread& spread) const {
  const bool across = spread.nodes > 1;
  const auto found = curves_.find({kind, across});
  if (found == curves_.end()) return std::nullopt;
  const std::int64_t per_node = across ? (spread.ranks + spread.nodes - 1) / spread.nodes : 1;
  const std::int64_t size = across ? spread.nodes : spread.ranks;
  const auto& [measured_per_node, sizes] = *nearest_entry(found->second, per_node);
  const Provenance worst =
      measured_per_node == per_node ? Provenance::measured : Provenance::extrapolated;
  // A group sends out of a node over the links of its own ranks there: with fewer of them than the
  // measured groups had it takes as much longer, while as many such groups beside each other use no
  // more than one of those did.
  const std::int64_t fewer =
      across ? std::max<std::int64_t>(1, measured_per_node / per_node) : std::int64_t{1};
  const std::int64_t at_once = (spread.at_once + fewer - 1) / fewer;
  const auto time_at = [&](const auto& entry) {
    return longer(contended(entry.second, at_once, payload), double(fewer), worst);
  };
  const auto above = sizes.lower_bound(size);
  if (above != sizes.end() && above->first == size) return time_at(*above);
  if (above == sizes.begin()) return longer(time_at(*above), 1, Provenance::extrapolated);
  const Estimate low = time_at(*std::prev(above));
  if (above == sizes.end()) {
    // Pieces go round, each 1/n of the payload: n - 1 of them, with a latency each.
    const double n = double(size), m = double(std::prev(above)->first);
    const double times = m > 1 ? std::max(1.0, (1 - 1 / n) / (1 - 1 / m)) : 1;
    return longer(low, times, Provenance::extrapolated);
  }
  const Estimate high = time_at(*above);
  const auto [from, unused] = *std::prev(above);
  const double part =
      std::log(double(size) / double(from)) / std::log(double(above->first) / double(from));
  const Seconds time = low.time * std::exp(part * std::log(high.time / low.time));
  const double relative = std::max(low.spread / low.time, high.spread / high.time);
  return Estimate{time, time * relative,
                  std::max({low.provenance, high.provenance, Provenance::interpolated})};
}

void OverlapCurves::add(const OverlapPoint& point) {
  curves_[{point.communication, point.nodes > 1, point.compute == OpKind::matmul}].try_emplace(
      point.payload.count(), Slowdowns{point.compute_slowdown, point.communication_slowdown});
}

OverlapCurves::Slowdowns OverlapCurves::at(OpKind communication, bool across_nodes, bool matmul,
                                           Bytes payload) const {
  auto found = curves_.end();
  for (const bool span : {across_nodes, !across_nodes}) {
    for (const bool beside : {matmul, !matmul}) {
      if (found == curves_.end()) found = curves_.find({communication, span, beside});
    }
  }
  if (found == curves_.end()) return {};
  const auto& by_payload = found->second;
  const auto at_least_one = [](Slowdowns slowdowns) {
    return Slowdowns{std::max(1.0, slowdowns.compute), std::max(1.0, slowdowns.communication)};
  };
  const auto above = by_payload.lower_bound(payload.count());
  if (above == by_payload.end()) return at_least_one(by_payload.rbegin()->second);
  if (above == by_payload.begin() || above->first == payload.count()) {
    return at_least_one(above->second);
  }
  const auto& [from, low] = *std::prev(above);
  const auto& [to, high] = *above;
  const double part =
      std::log(double(payload.count()) / double(from)) / std::log(double(to) / double(from));
  return at_least_one({low.compute + (high.compute - low.compute) * part,
                       low.communication + (high.communication - low.communication) * part});
}

}  // namespace plimsoll
