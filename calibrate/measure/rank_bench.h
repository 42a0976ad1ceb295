// Rank bench: what one rank measures by itself, on its core or on its device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/units.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/bench_case.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// An op that is run again and again, alone or while something else goes on.
class RepeatedWork {
 public:
  struct Run {
    Picoseconds begin;  ///< since run() was called; of a device: since it got there
    Seconds taken;
  };
  virtual ~RepeatedWork() = default;
  /// At least so often, and for at least so long. A device knows how often that is from the call
  /// before.
  virtual std::vector<Run> run(std::int64_t at_least, Seconds horizon) = 0;
};

class RankBench {
 public:
  virtual ~RankBench() = default;
  /// Whether there is a kernel for the case.
  virtual bool supports(const BenchCase& bench_case) const = 0;
  /// Time of one run.
  virtual Sample measure(const BenchCase& bench_case, const Sampling& sampling) = 0;
  /// One at a time, and no other measurement meanwhile.
  virtual std::unique_ptr<RepeatedWork> repeated(const BenchCase& bench_case) = 0;
};

/// Times of runs alone.
std::vector<Seconds> times_of(const std::vector<RepeatedWork::Run>& runs);

}  // namespace plimsoll
