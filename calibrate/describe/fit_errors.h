// Fit errors: how far each measured point lies from what the cost model makes of the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Each entry is of one point: measured over predicted without that point, less one (0.2: it took
/// 20 % longer). It is absent where the others do not surround it: the ends of a curve over sizes,
/// the only matmul of a form.
using LeftOutErrors = std::vector<std::optional<double>>;
LeftOutErrors left_out_errors(const std::vector<MatmulPoint>& points,
                              BytesPerSecond memory_bandwidth);
LeftOutErrors left_out_errors(const std::vector<OpPoint>& points);
LeftOutErrors left_out_errors(const std::vector<CollectivePoint>& points);

/// The magnitudes of one kind.
struct FitError {
  std::string what;  ///< "matmul", "gelu", "all_reduce of 2"
  std::size_t points = 0;
  double median = 0, worst_tenth = 0;  ///< worst_tenth: 90th percentile
};

/// By kind, in order of the calibration; kinds without a surrounded point are left out.
std::vector<FitError> fit_errors(const Calibration& calibration, BytesPerSecond memory_bandwidth);

}  // namespace plimsoll
