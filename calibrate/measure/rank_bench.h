// A rank bench is what one rank measures by itself, on its core or on its device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/units.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/bench_case.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// A RepeatedWork runs an op again and again, alone or beside other work.
class RepeatedWork {
 public:
  struct Run {
    Picoseconds begin;  ///< since run() was called; on a device: since the device reached it
    Seconds taken;
  };
  virtual ~RepeatedWork() = default;
  /// Runs the op at least `at_least` times and for at least `horizon`. A device computes the number
  /// of runs from the times of the call before.
  virtual std::vector<Run> run(std::int64_t at_least, Seconds horizon) = 0;
};

/// A RankBench measures ops of one rank.
class RankBench {
 public:
  virtual ~RankBench() = default;
  /// Returns whether there is a kernel for the case.
  virtual bool supports(const BenchCase& bench_case) const = 0;
  /// Returns the time of one run.
  virtual Sample measure(const BenchCase& bench_case, const Sampling& sampling) = 0;
  /// Returns work that repeats the case. Only one such work may exist at a time, and no other
  /// measurement runs while it exists.
  virtual std::unique_ptr<RepeatedWork> repeated(const BenchCase& bench_case) = 0;
};

/// Returns the times of the runs, without their begins.
std::vector<Seconds> times_of(const std::vector<RepeatedWork::Run>& runs);

}  // namespace plimsoll
