// Cost basis: which calibration a command predicts with. One rule for all commands.
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

/// A cluster and a framework with the numbers that a choice gives them, and what else it says. What
/// was measured counts; `fitted`, whose values the cluster and the framework hold, for the rest.
struct CostBasis {
  Cluster cluster;
  Framework framework;
  std::optional<Calibration> measured;
  std::optional<FittedCalibration> fitted;
  /// The name of the fit or the file, "typical", "FILE, else typical"; empty: no calibration.
  std::string name;
  std::string words;   ///< which calibration, and why: for the first line of a result
  std::string digest;  ///< of the file that was measured, else of the rest; empty: no calibration
  /// The digest of the file that answers for what was not measured, where there is another; else
  /// empty.
  std::string rest_digest;
  /// Where the cluster's efficiency comes from, if its file states none (default_efficiency.h).
  std::string efficiency_words;
};

/// `cluster_file` is named in errors; built-in fits with runs of `left_out`, a document, are not
/// there. Throws InputError where what was asked for is of another
/// device, cluster or framework.
CostBasis cost_basis(Cluster cluster, Framework framework, const CalibrationChoice& choice,
                     const std::string& cluster_file, std::string_view left_out = "");

}  // namespace plimsoll
