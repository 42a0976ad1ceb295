// Fit: few parameters of a cluster and of a framework, found from published runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fitting/cross_validate.h"
#include "models/calibration/fitted_calibration.h"
#include "published/published_run.h"

namespace plimsoll {

struct FitOptions {
  std::string cluster, framework;  ///< names: only runs on these count
  std::size_t most_runs = 2000;    ///< within a node, and as many across; evenly spread
  std::size_t folds = 5;
  int most_iterations = 15;
  bool layers = true;  ///< fit layer factors too (LayerPoint)
};

struct Fit {
  FittedCalibration fitted;
  double mean_abs_error_before = 0, mean_abs_error = 0;
  /// Without whole layouts of a model size, and without whole model sizes: none where all runs are
  /// of one size.
  CrossValidation by_layout, by_size;
  std::vector<FitFamily> families_by_layout, families_by_size;
};

/// Robust least squares of the logarithms of step times, the priors being further measurements
/// (robust_fit.h). Where sources do not say whether layers were repeated in backward, within a node
/// and across nodes each, all runs are taken the way that fits best. Folds start from the fit of
/// all runs, with its derivatives.
///
/// A parameter that the runs narrow by less than a tenth stays at its prior and is called not
/// determined. Throws InfeasibleError where no run is on that cluster and framework, or all are of
/// one layout.
Fit fit(std::span<const PublishedRun> runs, const FitOptions& options);

std::string fit_text(const Fit& fit);

}  // namespace plimsoll
