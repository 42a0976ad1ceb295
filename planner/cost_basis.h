// Cost basis: which calibration a command predicts with. One rule for all commands.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/calibration.h"
#include "models/cluster.h"
#include "models/fitted_calibration.h"
#include "models/framework.h"

namespace plimsoll {

/// Words that --calibration takes beside names and files.
inline constexpr std::string_view kBuiltInCalibration = "built-in", kTypicalCalibration = "typical",
                                  kNoCalibration = "none";

/// What --calibration names, read but not yet held against a cluster.
struct CalibrationChoice {
  /// What answers for all that was not measured.
  enum class Rest {
    built_in,  ///< what was fitted for the device and the framework, else rates typical of training
    typical,   ///< rates typical of training, also where something was fitted
    none,      ///< the cluster's own numbers
    given,     ///< `fitted`
  };
  Rest rest = Rest::built_in;
  std::optional<FittedCalibration> fitted;
  std::optional<Calibration> measured;
  /// Of published runs: fits with runs of the same document are not there (document_of()).
  bool leave_out_source = false;
  std::string file;  ///< of `fitted` or `measured`; empty: neither
  std::string text;  ///< of that file
};

/// The cluster's own numbers.
CalibrationChoice own_numbers();

/// "built-in" (or nothing), "typical", "none", the name of a built-in fit, or a file. Throws
/// InputError; for a file that is not there with the names that there are.
CalibrationChoice read_calibration_choice(const std::string& name);

/// A cluster and a framework with the numbers that a choice gives them, and what else it says.
struct CostBasis {
  Cluster cluster;
  Framework framework;
  std::optional<Calibration> measured;
  std::optional<FittedCalibration> fitted;
  std::string name;    ///< of the fit or the file, "typical"; empty: no calibration
  std::string words;   ///< which calibration, and why: for the first line of a result
  std::string digest;  ///< of what was read; empty: no calibration
  /// Where the cluster's efficiency comes from, if its file states none (default_efficiency.h).
  std::string efficiency_words;
};

/// `cluster_file` is named in errors; built-in fits with runs of `left_out`, a document, are not
/// there. Throws InputError where what was asked for is of another
/// device, cluster or framework.
CostBasis cost_basis(Cluster cluster, Framework framework, const CalibrationChoice& choice,
                     const std::string& cluster_file, std::string_view left_out = "");

}  // namespace plimsoll
