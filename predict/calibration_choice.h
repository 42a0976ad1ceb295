// Calibration choice: reads what --calibration names, before a cluster is known.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// Words that --calibration takes instead of a name or a file.
inline constexpr std::string_view kBuiltInCalibration = "built-in", kTypicalCalibration = "typical",
                                  kNoCalibration = "none";

/// The calibration that --calibration names.
struct CalibrationChoice {
  /// The costs of everything that was not measured.
  enum class Rest {
    built_in,  ///< the fit for the device and the framework, else rates typical of training
    typical,   ///< rates typical of training, even if there is a fit
    none,      ///< the cluster's own numbers
    given,     ///< `fitted`
  };
  Rest rest = Rest::built_in;
  std::optional<FittedCalibration> fitted;
  std::optional<Calibration> measured;
  /// Leaves out the fits that have runs of the same document as a published run (document_of()).
  bool leave_out_source = false;
  /// Names and texts of the files; empty without a file. The measured file may have a fit, too.
  std::string measured_file, measured_text, fitted_file, fitted_text;
};

/// Returns the choice of the cluster's own numbers.
CalibrationChoice own_numbers();

/// Reads a choice. The names are at most one file that was measured, and at most one name for the
/// rest, in any order. The rest is "built-in" (the default), "typical", "none", the name of a
/// built-in fit, or a file with a fit. If the rest is not named, a fit in the measured file counts.
/// Throws UsageError for several names of one sort, and InputError for files. The error for a file
/// that does not exist lists the names of built-in fits.
CalibrationChoice read_calibration_choice(const std::vector<std::string>& names);

}  // namespace plimsoll
