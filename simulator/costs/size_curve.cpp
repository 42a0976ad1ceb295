// Interpolates measured times over bytes.
#include "simulator/costs/size_curve.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace plimsoll {

void SizeCurve::add(Bytes size, const Sample& time, Provenance best) {
  const auto place = std::lower_bound(points_.begin(), points_.end(), size,
                                      [](const Point& point, Bytes s) { return point.size < s; });
  if (place != points_.end() && place->size == size) return;
  points_.insert(place, {size, time, best});
}

Seconds SizeCurve::latency() const {
  INVARIANT(!points_.empty(), "a curve without points");
  const Point &smallest = points_.front(), &largest = points_.back();
  const double part = double(smallest.size.count()) / double(largest.size.count());
  return std::max(Seconds(0), smallest.time.median - largest.time.median * part);
}

TimeParts SizeCurve::parts_at(Bytes size) const {
  const Estimate whole = at(size);
  return {whole, std::min(latency(), whole.time)};
}

Estimate SizeCurve::at(Bytes size) const {
  INVARIANT(!points_.empty(), "a curve without points");
  const auto above = std::lower_bound(points_.begin(), points_.end(), size,
                                      [](const Point& point, Bytes s) { return point.size < s; });
  if (above != points_.end() && above->size == size) {
    return {above->time.median, above->time.spread * kHalfWidth90, above->best};
  }
  if (above == points_.begin()) {
    const Seconds least = points_.size() > 1 ? latency() : above->time.median;
    const double part = double(size.count()) / double(above->size.count());
    const Seconds time = least + (above->time.median - least) * part;
    const double shorter = above->time.median > Seconds(0) ? time / above->time.median : 1;
    return {time, above->time.spread * (shorter * kHalfWidth90), Provenance::extrapolated};
  }
  const Point& low = *(above - 1);
  if (above == points_.end()) {
    const double times = double(size.count()) / double(low.size.count());
    return {low.time.median * times, low.time.spread * kHalfWidth90 * times,
            Provenance::extrapolated};
  }
  if (low.size.count() == 0 || low.time.median <= Seconds(0) || above->time.median <= Seconds(0)) {
    // Where there are no logarithms, the time lies on the line through both points.
    const double part =
        double((size - low.size).count()) / double((above->size - low.size).count());
    const Seconds time = low.time.median + (above->time.median - low.time.median) * part;
    return {time, std::max(low.time.spread, above->time.spread) * kHalfWidth90,
            Provenance::interpolated};
  }
  const double part = std::log(double(size.count()) / double(low.size.count())) /
                      std::log(double(above->size.count()) / double(low.size.count()));
  const double steps = std::log(above->time.median / low.time.median);
  const Seconds time = low.time.median * std::exp(part * steps);
  const double relative =
      std::max(low.time.spread / low.time.median, above->time.spread / above->time.median);
  return {time, time * (relative * kHalfWidth90), Provenance::interpolated};
}

}  // namespace plimsoll
