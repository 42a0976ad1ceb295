// Fit: few parameters of a cluster and of a framework, found from published runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/fitted_calibration.h"
#include "models/published_run.h"
#include "planner/validate.h"

namespace plimsoll {

struct FitOptions {
  std::string cluster, framework;  ///< names: only runs on these count
  std::size_t most_runs = 1000;    ///< of those that can be predicted, evenly spread
  std::size_t folds = 5;
  int most_iterations = 6;
  bool layers = true;  ///< fit layer factors too (LayerPoint)
};

struct FitFold {
  std::size_t runs = 0;
  std::vector<std::string> layouts;  ///< left out: "GPT s1024 tp 1 pp 2 dp 4"
  double mean_abs_error = 0;         ///< of these, by a fit without them
};

/// Errors of a family's runs, each predicted by a fit without its layout and model size.
struct FitFamily {
  std::string name;  ///< of its file, without .json
  ErrorStatistics unseen;
};

struct Fit {
  FittedCalibration fitted;
  double mean_abs_error_before = 0, mean_abs_error = 0;
  std::vector<FitFold> folds;
  std::vector<FitFamily> families;
};

/// Least squares of the logarithms of step times, robust against runs that lie far off (Huber 1964,
/// Annals of Mathematical Statistics 35: linear beyond 1.5 standard deviations, which are taken
/// from the median), the priors being further measurements. Gauss-Newton: Nocedal and Wright,
/// Numerical Optimization, 2006, section 10.3. Intervals are those of the linearised problem. Folds
/// consist of whole layouts of a model size; their fits start from that of all runs, with its
/// derivatives.
///
/// A parameter that the runs narrow by less than a tenth stays at its prior and is called not
/// determined. Throws InfeasibleError where no run is on that cluster and framework, or all are of
/// one layout.
Fit fit(std::span<const PublishedRun> runs, const FitOptions& options);

std::string fit_text(const Fit& fit);

}  // namespace plimsoll
