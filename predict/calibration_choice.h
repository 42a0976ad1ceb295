// Calibration choice: what --calibration names, read but not yet held against a cluster.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// Words that --calibration takes beside names and files.
inline constexpr std::string_view kBuiltInCalibration = "built-in", kTypicalCalibration = "typical",
                                  kNoCalibration = "none";

struct CalibrationChoice {
  /// The costs that answer for everything that was not measured.
  enum class Rest {
    built_in,  ///< what was fitted for the device and the framework, else rates typical of training
    typical,   ///< rates typical of training, also where something was fitted
    none,      ///< the cluster's own numbers
    given,     ///< `fitted`
  };
  Rest rest = Rest::built_in;
  std::optional<FittedCalibration> fitted;
  std::optional<Calibration> measured;
  /// For published runs: fits with runs of the same document are left out (document_of()).
  bool leave_out_source = false;
  /// Names and texts of the files; empty: there is none. A fit may stand in the measured file.
  std::string measured_file, measured_text, fitted_file, fitted_text;
};

/// The cluster's own numbers.
CalibrationChoice own_numbers();

/// At most one file that was measured, and at most one name of what answers for the rest, in any
/// order: "built-in" (where there is none), "typical", "none", the name of a built-in fit, or a
/// file with a fit. A fit in the measured file answers where no other is named. Throws UsageError
/// for several of one sort, InputError for files; for one that is not there with the names that
/// there are.
CalibrationChoice read_calibration_choice(const std::vector<std::string>& names);

}  // namespace plimsoll
