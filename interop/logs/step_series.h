// A StepSeries collects the steps that one trainer's lines print. Internal to interop/logs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "interop/logs/training_log.h"

namespace plimsoll {

class StepSeries {
 public:
  /// Begins a step, or returns to one of the last few, which another rank printed before. A number
  /// that goes further back begins a new run.
  void open(std::int64_t number, std::int64_t line, std::optional<double> stamp);
  /// Sets a value of the current step that it has not yet.
  void set(LogQuantity quantity, double value);
  void set_ahead(LogQuantity quantity, double value) { ahead_[std::size_t(quantity)] = value; }
  void mark_evaluation() { evaluated_ = true; }
  void mark_checkpoint() { saved_ = true; }
  /// Moves the steps into the log. No step may be added after it.
  void finish(TrainingLog& log);

  std::int64_t distinct() const { return distinct_; }
  std::int64_t last() const { return current_ ? current_->number : 0; }
  bool has(LogQuantity quantity) const { return seen_[std::size_t(quantity)]; }

 private:
  void keep_current();

  std::optional<LogStep> current_;
  bool repeated_ = false;  ///< the lines read now repeat a step that is not the current one
  bool new_run_ = false;   ///< the current step begins a run
  bool evaluated_ = false, saved_ = false;
  std::array<std::optional<double>, kStepQuantities> ahead_ = {};
  std::array<bool, kStepQuantities> seen_ = {};
  std::array<std::int64_t, 8> recent_ = {};  ///< numbers of the last steps
  std::size_t recents_ = 0;
  std::vector<LogStep> kept_;
  std::vector<std::size_t> run_begins_;
  std::int64_t distinct_ = 0, repeats_ = 0, stride_ = 1;
};

}  // namespace plimsoll
