// Calibration file: what was measured, what was fitted on published runs, or both in one file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// At least one of them. Where both are there, the fit answers for what was not measured.
struct CalibrationFile {
  std::optional<Calibration> measured;
  std::optional<FittedCalibration> fitted;
};

/// Throws InputError as parse_calibration() and parse_fitted_calibration() do.
CalibrationFile parse_calibration_file(std::string_view text, const std::string& file);
std::string calibration_file_text(const CalibrationFile& calibration);

}  // namespace plimsoll
