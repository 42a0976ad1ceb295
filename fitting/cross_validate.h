// Cross-validation: runs of a fit, each predicted by a fit without those that are like it.
#pragma once

#include <string>
#include <vector>

#include "fitting/fit_model.h"
#include "fitting/robust/robust_fit.h"
#include "published/validate.h"

namespace plimsoll {

/// A run as a fit without it predicts it.
struct UnseenRun {
  std::size_t run = 0;  ///< of FitModel::runs
  std::string family;
  bool across_nodes = false;
  std::size_t fold = 0;
  double predicted = 0, measured = 0;  ///< logarithms
  double layer_deviation = 0;          ///< of the logarithm of its layers' factor, as the fit says
};

struct FitFold {
  std::size_t runs = 0;
  std::vector<std::string> left_out;  ///< layouts or sizes
  double mean_abs_error = 0;          ///< of its runs
};

/// Errors of a family's runs that were left out.
struct FitFamily {
  std::string name;  ///< of its file, without .json
  ErrorStatistics unseen;
};

struct CrossValidation {
  std::vector<FitFold> folds;
  std::vector<UnseenRun> runs;
  double mean_abs_error = 0, p90_abs_error = 0;
};

/// Factors of the shapes that have runs in use.
std::vector<LayerPoint> layer_points(const FitModel& model, const RobustSolution& solution,
                                     const std::vector<bool>& use);

/// Runs with the same FitRun::`*alike` are left out together. Nothing where all are alike.
CrossValidation cross_validate(const FitModel& model, const LogModel& log_model,
                               const RobustSolution& whole, std::string FitRun::*alike,
                               std::size_t folds);

/// The narrowest intervals, by their mean half width, that hold 90 % of the runs: of those within a
/// node or across nodes, if there are kLeastOfGroup, else of all. A run that both cross-validations
/// left out is two.
RunSpread run_spread(const std::vector<UnseenRun>& runs, bool across_nodes);

/// By family. The interval of a run left out is as wide as `unseen`, without all that there is of
/// its fold's runs, needed: what run_spread of all of `unseen` is for runs that nothing is known
/// of.
std::vector<FitFamily> families_of(const CrossValidation& left_out,
                                   const std::vector<UnseenRun>& unseen);

}  // namespace plimsoll
