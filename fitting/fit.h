// A fit finds a few parameters of a cluster and of a framework from published runs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fitting/cross_validate.h"
#include "fitting/fit_model.h"
#include "models/calibration/fitted_calibration.h"
#include "published/published_run.h"

namespace plimsoll {

struct FitOptions {
  std::string cluster, framework;  ///< names; only runs on these count
  /// the most runs within a node, and the most across nodes, evenly spread
  std::size_t most_runs = 2000;
  std::size_t folds = 5;
  int most_iterations = 15;
  LayerShapes layers = LayerShapes::repeated;  ///< whose factors are fitted, too (LayerPoint)
  bool without = false;                        ///< fit again without each document (Fit::without)
  /// Is called with the number of fits that are done and the number of all, which are the fit of
  /// all runs and one for each fold.
  std::function<void(std::int64_t done, std::int64_t of)> progress{};
};

struct Fit {
  FittedCalibration fitted;
  double mean_abs_error_before = 0, mean_abs_error = 0;
  /// Cross-validations without whole layouts of a model size, and without whole model sizes. The
  /// second is empty where all runs have one size.
  CrossValidation by_layout, by_size;
  std::vector<FitFamily> families_by_layout, families_by_size;
  std::vector<FitWithout> without;  ///< by document; see fits_without()
};

/// Fits by robust least squares of the logarithms of step times, with the priors as further
/// measurements (robust_fit.h). Some sources do not say whether layers were recomputed in backward.
/// Their runs within a node are all taken the way that fits best, and so are their runs across
/// nodes. Folds start from the fit of all runs, with its derivatives.
///
/// A parameter stays at its prior and is called not determined where the runs narrow it by less
/// than a tenth. Throws InfeasibleError where no run is on that cluster and framework, or where all
/// runs have one layout.
Fit fit(std::span<const PublishedRun> runs, const FitOptions& options);

std::string fit_text(const Fit& fit);

}  // namespace plimsoll
