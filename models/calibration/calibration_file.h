// A calibration file holds measurements, a fit on published runs, or both.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// At least one of the two is there. Where both are, the fit covers what was not measured.
struct CalibrationFile {
  std::optional<Calibration> measured;
  std::optional<FittedCalibration> fitted;
};

/// Parses a file. Throws InputError as parse_calibration() and parse_fitted_calibration() do.
CalibrationFile parse_calibration_file(std::string_view text, const std::string& file);
std::string calibration_file_text(const CalibrationFile& calibration);

}  // namespace plimsoll
