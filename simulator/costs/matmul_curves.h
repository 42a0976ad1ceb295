// Time of a matmul against its shape, from measured points.
#pragma once

#include <map>
#include <vector>

#include "graph/op_table.h"
#include "models/calibration/calibration.h"
#include "simulator/costs/estimate.h"

namespace plimsoll {

/// Which operands are stored transposed, and what the kernel does beside multiplying: each form has
/// kernels of its own in a library, so each has points of its own.
struct MatmulForm {
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, bias = false;
  bool batched = false;  ///< shape.batch > 1
  DType dtype = DType::f32;
  auto operator<=>(const MatmulForm&) const = default;
};

/// An exact hit is the measured time. Otherwise the roofline time of the shape (its operations at
/// the best measured rate, plus its operands at the memory bandwidth) is multiplied by the factor
/// that measured over roofline shows nearby: a weighted quadratic fit of its logarithm over
/// log(batch, m, n, k), kept within the range of the nearest points. Left out one at a time, the
/// 607 points of a full sweep on an idle two-core machine (2026-11-20) come out within 4.0 %
/// (median) and 15 % (90th percentile) of their measured times.
class MatmulCurves {
 public:
  explicit MatmulCurves(BytesPerSecond memory_bandwidth) : memory_bandwidth_(memory_bandwidth) {}

  void add(const MatmulPoint& point);
  /// Whether some point multiplies in this dtype.
  bool covers(DType dtype) const;
  Estimate at(const MatmulShape& shape, const MatmulForm& form) const;

 private:
  struct Point {
    MatmulShape shape;
    Sample time;
  };
  const std::vector<Point>& nearest_form(const MatmulForm& form) const;
  Seconds roofline(const MatmulShape& shape, const MatmulForm& form) const;

  BytesPerSecond memory_bandwidth_;
  std::map<MatmulForm, std::vector<Point>> points_;
  std::map<DType, FlopsPerSecond> best_rate_;
};

}  // namespace plimsoll
