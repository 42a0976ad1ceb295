// Cross-validation predicts each run of a fit by a fit without the runs that are like it, or
// without those of its document.
#pragma once

#include <string>
#include <vector>

#include "fitting/fit_model.h"
#include "fitting/robust/robust_fit.h"
#include "models/calibration/fitted_calibration.h"
#include "published/validate.h"

namespace plimsoll {

/// An UnseenRun is a run as predicted by a fit without it.
struct UnseenRun {
  std::size_t run = 0;  ///< index into FitModel::runs
  std::string family;
  bool across_nodes = false;
  std::size_t fold = 0;
  double predicted = 0, measured = 0;  ///< logarithms
  /// standard deviation of the logarithm of its layers' factor, as the fit states it
  double layer_deviation = 0;
};

struct FitFold {
  std::size_t runs = 0;
  std::vector<std::string> left_out;  ///< layouts or sizes
  double mean_abs_error = 0;          ///< mean error of the runs that were left out
};

/// The errors of a family's runs, each as a run that was left out.
struct FitFamily {
  std::string name;  ///< name of the family's file, without .json
  ErrorStatistics unseen;
};

struct CrossValidation {
  std::vector<FitFold> folds;
  std::vector<UnseenRun> runs;
  double mean_abs_error = 0, p90_abs_error = 0;
};

/// Returns the factors of the shapes that have runs in use.
std::vector<LayerPoint> layer_points(const FitModel& model, const RobustSolution& solution,
                                     const std::vector<bool>& use);

/// Returns the limits of the search for a fit without some of the runs, from the fit of all runs.
SearchLimits fold_limits(const RobustSolution& whole);

/// Leaves out together all runs with the same FitRun::`*alike`. The result is empty where all runs
/// are alike. Calls `after_fold`, if it is given, after each of at most `folds` folds.
CrossValidation cross_validate(const FitModel& model, const LogModel& log_model,
                               const RobustSolution& whole, std::string FitRun::*alike,
                               std::size_t folds, const std::function<void()>& after_fold = {});

/// Return |predicted / measured - 1|: the mean over the runs, and what 90 % of further runs are
/// expected not to exceed. Both are 0 without runs.
double mean_abs_error(const std::vector<UnseenRun>& runs);
double p90_abs_error(const std::vector<UnseenRun>& runs);

/// Returns the narrowest intervals, by their mean half width, that hold 90 % of the runs. The runs
/// are those within a node or across nodes, if there are kLeastOfGroup of them, else all runs. A
/// run that both cross-validations left out counts twice.
RunSpread run_spread(const std::vector<UnseenRun>& runs, bool across_nodes);

/// Returns the errors by family. The interval of a run that was left out has the width that the
/// runs of `unseen` outside its fold needed: run_spread() of these is the spread for runs of which
/// nothing is known.
std::vector<FitFamily> families_of(const CrossValidation& left_out,
                                   const std::vector<UnseenRun>& unseen);

/// A fit of all runs but those of `document`.
struct FitWithout {
  std::string document;
  FittedCalibration fitted;
};

/// With fewer runs a fit is not made: its numbers would be those of single layouts.
inline constexpr std::size_t kLeastRunsOfFit = 6;

/// Sets what follows from the runs in use and from their solution: the number of runs and their
/// sizes, the device and the levels, the values and the layers.
void set_numbers(const FitModel& model, const LogModel& log_model, const RobustSolution& solution,
                 const std::vector<bool>& use, FittedCalibration& fitted);

/// Fits again without each document, in the order of their names. Documents whose absence leaves
/// fewer than kLeastRunsOfFit runs, or runs of one layout, are passed over. A fit has its own
/// numbers. Its errors are those of the runs that the cross-validation `by_layout` of `whole` left
/// out, and its spreads those of `unseen`, the runs that any left out, as far as they are of other
/// documents. The result is empty for runs of one document.
std::vector<FitWithout> fits_without(const FitModel& model, const LogModel& log_model,
                                     const RobustSolution& whole, const CrossValidation& by_layout,
                                     const std::vector<UnseenRun>& unseen,
                                     const FittedCalibration& fitted);

}  // namespace plimsoll
