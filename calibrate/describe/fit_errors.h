// Fit errors say how far each measured point lies from the cost model's prediction without this
// point.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Each entry is for one point: measured over predicted without that point, less one (0.2: it took
/// 20 % longer). It is absent where the other points do not surround it: at the ends of a curve
/// over sizes, and for the only matmul of a form.
using LeftOutErrors = std::vector<std::optional<double>>;
LeftOutErrors left_out_errors(const std::vector<MatmulPoint>& points,
                              BytesPerSecond memory_bandwidth);
LeftOutErrors left_out_errors(const std::vector<OpPoint>& points);
LeftOutErrors left_out_errors(const std::vector<CollectivePoint>& points);

/// A FitError has the magnitudes of the errors of one kind.
struct FitError {
  std::string what;  ///< "matmul", "gelu", "all_reduce of 2"
  std::size_t points = 0;
  double median = 0, worst_tenth = 0;  ///< worst_tenth: 90th percentile
};

/// Returns the errors by kind, in order of the calibration. Kinds without a surrounded point are
/// left out.
std::vector<FitError> fit_errors(const Calibration& calibration, BytesPerSecond memory_bandwidth);

}  // namespace plimsoll
