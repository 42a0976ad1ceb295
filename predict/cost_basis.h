// Cost basis: finds the calibration that a command predicts with, by one rule for all commands.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "predict/calibration_choice.h"

namespace plimsoll {

/// How a basis names its numbers.
struct CostSource {
  /// The name of the fit or the file, "typical", "FILE, else typical"; empty: no calibration.
  std::string name;
  std::string words;   ///< which calibration, and why: for the first line of a result
  std::string digest;  ///< of the file that was measured, else of the rest; empty: no calibration
  /// The digest of the file that answers for what was not measured. It is empty where there is no
  /// second file.
  std::string rest_digest;
  /// Says where the cluster's efficiency comes from, if its file states none
  /// (default_efficiency.h).
  std::string efficiency_words;
  std::string assumed{};  ///< what the device cannot do, and `words` ends with; usually empty
};

/// A cluster and a framework with the numbers that a choice gives them. An op that was measured has
/// that time. The fit's values, which the cluster and the framework hold, answer for other ops.
struct CostBasis {
  Cluster cluster;
  Framework framework;
  std::optional<Calibration> measured;
  std::optional<FittedCalibration> fitted;
  CostSource source;
};

/// Returns the basis of a choice for steps of `document`; empty: the user's own. `cluster_file` is
/// named in errors. If the choice leaves the document out, built-in fits with its runs do not
/// count; the fits that were made without it do. A fit of other people's runs is drawn towards
/// typical rates (shrink()). Throws InputError where the calibration that was asked for is of
/// another device, cluster or framework.
CostBasis cost_basis(Cluster cluster, Framework framework, const CalibrationChoice& choice,
                     const std::string& cluster_file, std::string_view document = "");

}  // namespace plimsoll
