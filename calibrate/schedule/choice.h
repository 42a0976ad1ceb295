// Choice: which test a calibration measures next, and when its reference says that the machine has
// changed meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/schedule/schedule.h"

namespace plimsoll {

/// Essential tests come first, whatever the budget says, then those of the kind that has spent
/// least of its share. Of one kind, in order of the schedule; of communications, first where the
/// planner is likeliest to be wrong: it interpolates between payloads that were measured, in log
/// space, which is exact where time is latency alone or bandwidth alone and worst where the one
/// turns into the other, or where time jumps (caches, shaped links). With the slope s of log time
/// over log payload between the two measured neighbours, and their distance d, that doubt is
/// d s (1 - s), beyond a slope of one d (s - 1), and never less than d / 50. When all are measured,
/// those that were unsteady again, and then all once more. Deterministic: a function of the times
/// it is told.
///
/// With `weights` (workload.h), one for each test, doubts are multiplied by them, and tests of ops
/// and of products come by weight: what a plan runs most of is known first. Not when all are
/// measured: then they come in order of the schedule.
class Choice {
 public:
  Choice(std::span<const CalibrationTest> tests, Seconds budget, std::vector<double> weights = {});

  /// Nothing when the time is up, `elapsed` being what has passed since the start.
  std::optional<std::size_t> next(Seconds elapsed);
  /// `time` is what was found: its median; nothing where it is no time of a communication.
  void measured(std::size_t i, bool unsteady, std::optional<Seconds> time, Seconds took);
  /// Found in a journal: it costs nothing of this run's budget.
  void restored(std::size_t i, bool unsteady, std::optional<Seconds> time);
  /// As if it had not been measured.
  void forget(std::size_t i);
  std::size_t left_out() const;

 private:
  std::size_t part(std::size_t i) const { return tests_[i].subject.index(); }
  double doubt(std::size_t i) const;
  /// The test of the largest urgency comes next among tests of one kind.
  double urgency(std::size_t i) const;

  std::span<const CalibrationTest> tests_;
  Seconds budget_;
  std::vector<double> weights_;
  std::vector<int> times_;
  std::vector<bool> unsteady_;
  std::array<double, std::variant_size_v<TestSubject>> spent_ = {};
  std::vector<std::optional<Seconds>> found_;
  /// For each communication, the tests of its kind and shape, by payload.
  std::vector<std::size_t> curve_of_;
  std::vector<std::vector<std::size_t>> curves_;
};

/// Whether a kernel that is timed again and again is as fast as before: clocks fall when a device
/// gets hot or meets its power limit, and rise when others leave.
class Drift {
 public:
  /// Relative slowdown of the reference from which what was measured since is not trusted. A point
  /// counts as steady below the same spread.
  static constexpr double kMost = 0.10;
  /// Tests between two references, and the least time.
  static constexpr std::size_t kTests = 16;
  static constexpr Seconds kApart{2.0};

  bool due(Seconds elapsed) const;
  /// Whether anything was measured since the last reference: none may end a calibration unlooked
  /// at.
  bool pending() const { return !since_.empty(); }
  void tested(std::size_t i) { since_.push_back(i); }
  /// The tests, each once, whose measurements since the last reference are not trusted; none where
  /// the reference is as before. A reference that stays
  /// slow twice in a row is what the machine has settled at, and the new measure.
  std::vector<std::size_t> look_at(Seconds reference, Seconds elapsed);
  std::size_t discarded() const { return discarded_; }
  /// In words; empty: nothing happened.
  std::string summary() const;

 private:
  std::optional<Seconds> usual_;
  Seconds last_;
  std::vector<std::size_t> since_;
  std::size_t discarded_ = 0, drifts_ = 0;
  bool slow_ = false;
  double worst_ = 0;
};

}  // namespace plimsoll
