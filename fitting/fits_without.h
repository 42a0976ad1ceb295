// Fits without the runs of one document: what a fit would be if that document had not been read.
#pragma once

#include <string>
#include <vector>

#include "fitting/cross_validate.h"
#include "fitting/fit_model.h"
#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

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
