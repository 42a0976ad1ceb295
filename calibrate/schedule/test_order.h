// A TestOrder decides which test a calibration measures next. A ReferenceDrift says when its
// reference kernel shows that the machine has changed meanwhile.
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

/// Essential tests come first, whatever the budget is. The next test is of the kind that has spent
/// the least part of its share. Within a kind, tests come in the order of the schedule.
/// Communications come first where the planner is likeliest to be wrong. It interpolates in log
/// space between measured payloads. This is exact where time is latency alone or bandwidth alone.
/// It is worst where latency gives way to bandwidth, or where time jumps (caches, shaped links).
/// Let s be the slope of log time over log payload between two measured neighbours, and d their
/// distance. The doubt is d s (1 - s), for a slope above one d (s - 1), and never less than d / 50.
/// When all tests are measured, the unsteady ones come again, and then all once more. The choice is
/// a function of the times that it is told, and so deterministic.
/// it is told.
/// With `weights` (workload.h), one for each test, doubts are multiplied by them, and tests of ops
/// and of products come by weight, so that the ops which a plan runs most are known first. In the
/// second pass all tests come in order of the schedule.
class TestOrder {
 public:
  TestOrder(std::span<const CalibrationTest> tests, Seconds budget,
            std::vector<double> weights = {});

  /// Returns the next test, and nothing when the time is up. `elapsed` is the time since the start.
  std::optional<std::size_t> next(Seconds elapsed);
  /// Says that a test was measured. `time` is its median, and absent where it is not the time of a
  /// communication.
  void measured(std::size_t i, bool unsteady, std::optional<Seconds> time, Seconds took);
  /// Says that a test was found in a journal. It costs nothing of this run's budget.
  void restored(std::size_t i, bool unsteady, std::optional<Seconds> time);
  /// Forgets the result of a test, as if it had not been measured.
  void forget(std::size_t i);
  std::size_t left_out() const;

 private:
  std::size_t part(std::size_t i) const { return tests_[i].subject.index(); }
  double doubt(std::size_t i) const;
  /// Returns the urgency of a test. Among tests of one kind the most urgent one comes next.
  double urgency(std::size_t i) const;

  std::span<const CalibrationTest> tests_;
  Seconds budget_;
  std::vector<double> weights_;
  std::vector<int> times_;
  std::vector<bool> unsteady_;
  std::array<double, std::variant_size_v<TestSubject>> spent_ = {};
  std::vector<std::optional<Seconds>> found_;
  /// For each communication, the index of the curve with the tests of its kind and shape, by
  /// payload.
  std::vector<std::size_t> curve_of_;
  std::vector<std::vector<std::size_t>> curves_;
};

/// A ReferenceDrift tells whether a kernel that is timed again and again is as fast as before.
/// Clocks fall when a device gets hot or meets its power limit, and rise when other users leave.
class ReferenceDrift {
 public:
  /// The relative slowdown of the reference above which the measurements since the last reference
  /// are not trusted. A point counts as steady below this spread, too.
  static constexpr double kMostSlowdown = 0.10;
  /// The number of tests between two references, and the least time between them.
  static constexpr std::size_t kMostTests = 16;
  static constexpr Seconds kLeastInterval{2.0};

  bool due(Seconds elapsed) const;
  /// Returns whether anything was measured since the last reference. A calibration may not end
  /// before a reference has checked it.
  bool pending() const { return !since_.empty(); }
  void tested(std::size_t i) { since_.push_back(i); }
  /// Returns the tests, each once, whose measurements since the last reference are not trusted.
  /// There are none where the reference is as before. A reference that is slow twice in a row is
  /// the machine's new normal, and replaces the old one.
  std::vector<std::size_t> check_reference(Seconds reference, Seconds elapsed);
  std::size_t discarded() const { return discarded_; }
  /// Returns the drifts in words, and an empty text where there were none.
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
