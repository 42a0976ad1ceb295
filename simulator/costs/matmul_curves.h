// Matmul curves: the time of a matmul by its shape, from measured points.
#pragma once

#include <map>
#include <vector>

#include "graph/op_table.h"
#include "models/calibration/calibration.h"
#include "simulator/costs/estimate.h"

namespace plimsoll {

/// Which operands are stored transposed, and what the kernel does beside multiplying. A library has
/// kernels for each form, so each form has its own points.
struct MatmulForm {
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, bias = false;
  bool batched = false;  ///< shape.batch > 1
  DType dtype = DType::f32;
  auto operator<=>(const MatmulForm&) const = default;
};

/// At a measured shape the time is the measured one. Elsewhere it is the roofline time of the shape
/// times a factor. The roofline time is that of the operations at the best measured rate plus that
/// of the operands at the memory bandwidth. The factor is what measured times over roofline times
/// show nearby: a weighted quadratic fit of its logarithm over log(batch, m, n, k), kept within the
/// range of the nearest points. No time is below that of the best measured rate. Left out one at a
/// time, the 607 points of a full sweep on an idle two-core machine are predicted within 4.0 %
/// (median) and 15 % (90th percentile).
class MatmulCurves {
 public:
  explicit MatmulCurves(BytesPerSecond memory_bandwidth) : memory_bandwidth_(memory_bandwidth) {}

  void add(const MatmulPoint& point);
  /// Whether there are points for this dtype.
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
