// Time of an op against its bytes, from measured points.
#pragma once

#include <vector>

#include "simulator/costs/estimate.h"

namespace plimsoll {

/// A time, and what of it does not grow with the bytes.
struct TimeParts {
  Estimate whole;
  Seconds latency;  ///< at most the whole
};

/// Piecewise linear in log-log over bytes: the measured time at a measured size, interpolated
/// between two, constant bandwidth above the largest; below the smallest its latency, and the rest
/// of its time in proportion (of one point alone the same time: nothing tells its latency).
class SizeCurve {
 public:
  /// Points come in any order; of several at one size the first counts. `best`: what the estimate
  /// at that size is called.
  void add(Bytes size, const Sample& time, Provenance best = Provenance::measured);
  bool empty() const { return points_.empty(); }
  /// Some point must have been added.
  Estimate at(Bytes size) const;
  /// The part that does not grow with the bytes: the time at the smallest size, less what that is
  /// of the largest one's at its bandwidth. With one point it is nothing.
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
