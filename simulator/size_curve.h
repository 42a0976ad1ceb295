// Time of an op against its bytes, from measured points.
#pragma once

#include <vector>

#include "simulator/estimate.h"

namespace plimsoll {

/// Piecewise linear in log-log over bytes: the measured time at a measured size, interpolated
/// between two, constant bandwidth above the largest and constant time below the smallest.
class SizeCurve {
 public:
  /// Points come in any order; of several at one size the first counts.
  void add(Bytes size, const Sample& time);
  bool empty() const { return points_.empty(); }
  /// Some point must have been added.
  Estimate at(Bytes size) const;

 private:
  struct Point {
    Bytes size;
    Sample time;
  };
  std::vector<Point> points_;  // ascending size
};

}  // namespace plimsoll
