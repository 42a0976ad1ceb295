// Size curve: the time of an op by its bytes, from measured points.
#pragma once

#include <vector>

#include "simulator/costs/estimate.h"

namespace plimsoll {

/// A time, and the part of it that does not grow with the bytes.
struct TimeParts {
  Estimate whole;
  Seconds latency;  ///< at most the whole
};

/// A curve that is piecewise linear in log-log over bytes. At a measured size it is the measured
/// time. Above the largest size the bandwidth is constant. Below the smallest size the latency is
/// constant, and the rest of the time shrinks in proportion. With a single point, which tells no
/// latency, the time there is constant.
class SizeCurve {
 public:
  /// Points come in any order; of several at one size the first counts. `best` is the label of an
  /// estimate at that size.
  void add(Bytes size, const Sample& time, Provenance best = Provenance::measured);
  bool empty() const { return points_.empty(); }
  /// At least one point must have been added.
  Estimate at(Bytes size) const;
  /// Returns the part that does not grow with the bytes. It is the time at the smallest size, less
  /// the time of these bytes at the largest size's bandwidth. With one point it is 0.
  Seconds latency() const;
  TimeParts parts_at(Bytes size) const;

 private:
  struct Point {
    Bytes size;
    Sample time;
    Provenance best;
  };
  std::vector<Point> points_;  // ascending size
};

}  // namespace plimsoll
