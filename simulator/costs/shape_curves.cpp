// Interpolates measured communications over ranks, nodes and sizes.
#include "simulator/costs/shape_curves.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace plimsoll {
namespace {

double log_distance(std::int64_t a, std::int64_t b) {
  return std::abs(std::log(double(a) / double(b)));
}

/// Returns the entry whose key is nearest on a logarithmic scale; of two, the smaller one.
template <class Map>
typename Map::const_iterator nearest_entry(const Map& map, std::int64_t key) {
  auto best = map.begin();
  for (auto at = map.begin(); at != map.end(); ++at) {
    if (log_distance(at->first, key) < log_distance(best->first, key)) best = at;
  }
  return best;
}

/// Multiplies the latency and the rest of a time by a factor each.
TimeParts longer(TimeParts parts, double latency_times, double bytes_times, Provenance at_least) {
  const Seconds latency = parts.latency * latency_times;
  const Seconds time = latency + (parts.whole.time - parts.latency) * bytes_times;
  const double relative = parts.whole.spread / parts.whole.time;
  return {{time, time * relative, std::max(parts.whole.provenance, at_least)}, latency};
}

/// Returns the time that lies `part` of the way between two times, by their logarithms.
TimeParts between(const TimeParts& low, const TimeParts& high, double part) {
  const Estimate &a = low.whole, &b = high.whole;
  const Seconds time = a.time * std::exp(part * std::log(b.time / a.time));
  const double relative = std::max(a.spread / a.time, b.spread / b.time);
  return {{time, time * relative, std::max({a.provenance, b.provenance, Provenance::interpolated})},
          std::min(time, low.latency + (high.latency - low.latency) * part)};
}

double log_part(std::int64_t from, std::int64_t at, std::int64_t to) {
  return std::log(double(at) / double(from)) / std::log(double(to) / double(from));
}

TimeParts contended(const std::map<std::int64_t, SizeCurve>& by_at_once, std::int64_t at_once,
                    Bytes payload) {
  const auto above = by_at_once.upper_bound(at_once);
  if (above == by_at_once.begin()) {  // only more at once than asked for
    return longer(above->second.parts_at(payload), 1, 1, Provenance::extrapolated);
  }
  // More groups at once are never faster.
  std::optional<TimeParts> slowest;
  const auto look_at = [&](const SizeCurve& curve) {
    const TimeParts parts = curve.parts_at(payload);
    if (!slowest || parts.whole.time >= slowest->whole.time) slowest = parts;
  };
  for (auto entry = by_at_once.begin(); entry != above; ++entry) look_at(entry->second);
  const std::int64_t most = std::prev(above)->first;
  if (most == at_once) return *slowest;
  if (above == by_at_once.end()) {
    return longer(*slowest, 1, double(at_once) / double(most), Provenance::extrapolated);
  }
  const TimeParts low = *slowest;
  look_at(above->second);
  return between(low, *slowest, log_part(most, at_once, above->first));
}

/// Returns by what factor latency grows from a measured group of `m` to a group of `n`. `before` is
/// a measured group smaller than m, if there is one.
double latency_growth(OpKind kind, double n, double m, Seconds at_m,
                      const std::optional<std::pair<double, Seconds>>& before) {
  if (before && before->second > Seconds(0) && at_m > Seconds(0)) {
    const double slope = std::log(at_m / before->second) / std::log(m / before->first);
    return std::pow(n / m, std::clamp(slope, 0.0, 1.0));
  }
  return kind == OpKind::all_reduce ? std::log2(n) / std::log2(m) : (n - 1) / (m - 1);
}

}  // namespace

void ShapeCurves::add(const CollectivePoint& point) {
  const bool across = point.nodes > 1;
  const std::int64_t per_node = across ? point.ranks / point.nodes : 1;
  const std::int64_t size = across ? point.nodes : point.ranks;
  SizeCurve& curve =
      curves_[point.kind][point.dtype][across][per_node][size][point.groups_per_node];
  curve.add(point.payload, point.time,
            point.imported ? Provenance::interpolated : Provenance::measured);
  has_contention_ = has_contention_ || point.groups_per_node > 1;
}

std::optional<TimeParts> ShapeCurves::at(OpKind kind, DType dtype, Bytes payload,
                                         const GroupSpread& spread) const {
  const bool across = spread.nodes > 1;
  const auto by_type = curves_.find(kind);
  if (by_type == curves_.end()) return std::nullopt;
  const PerNode* found = nullptr;
  const DType wanted = adds_up(kind) ? dtype : DType::f32;
  Provenance worst = Provenance::measured;
  const auto take = [&](DType type) {
    const auto curves = by_type->second.find(type);
    if (found != nullptr || curves == by_type->second.end()) return;
    const auto lying = curves->second.find(across);
    if (lying == curves->second.end()) return;
    found = &lying->second;
    if (type != wanted) worst = Provenance::extrapolated;
  };
  take(wanted);
  take(DType::f32);
  for (const auto& [type, unused] : by_type->second) take(type);
  if (found == nullptr) return std::nullopt;
  const std::int64_t per_node = across ? (spread.ranks + spread.nodes - 1) / spread.nodes : 1;
  const std::int64_t size = across ? spread.nodes : spread.ranks;
  const auto& [measured_per_node, sizes] = *nearest_entry(*found, per_node);
  if (measured_per_node != per_node) worst = Provenance::extrapolated;
  // A group sends out of a node over the links of its ranks there. With fewer ranks than the
  // measured groups had, it takes longer in proportion. Several such groups at once then use no
  // more than one measured group did.
  const std::int64_t fewer =
      across ? std::max<std::int64_t>(1, measured_per_node / per_node) : std::int64_t{1};
  const std::int64_t at_once = (spread.at_once + fewer - 1) / fewer;
  const auto parts_at = [&](const auto& entry) {
    return longer(contended(entry.second, at_once, payload), 1, double(fewer), worst);
  };
  const auto above = sizes.lower_bound(size);
  if (above != sizes.end() && above->first == size) return parts_at(*above);
  if (above == sizes.begin()) {
    return longer(parts_at(*above), 1, 1, Provenance::extrapolated);
  }
  const auto below = std::prev(above);
  const TimeParts low = parts_at(*below);
  if (above != sizes.end()) {
    return between(low, parts_at(*above), log_part(below->first, size, above->first));
  }
  std::optional<std::pair<double, Seconds>> before;
  if (below != sizes.begin()) {
    before = std::pair(double(std::prev(below)->first), parts_at(*std::prev(below)).latency);
  }
  const double n = double(size), m = double(below->first);
  const double pieces = (1 - 1 / n) / (1 - 1 / m);
  return longer(low, latency_growth(kind, n, m, low.latency, before), pieces,
                Provenance::extrapolated);
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
