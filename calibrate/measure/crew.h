// Crew: the same work on every core at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Runs `work(member)` on `size` threads and waits for all; rethrows the first exception.
void run_together(std::int64_t size, const std::function<void(std::int64_t member)>& work);

/// Uninitialised 64-byte aligned memory.
class Pool {
 public:
  Pool() = default;
  explicit Pool(Bytes size);
  std::span<std::byte> memory() const { return {aligned_, std::size_t(size_.count())}; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::byte* aligned_ = nullptr;
  Bytes size_;
};

/// One core's share of a measurement: runs the work once and returns how long it took. It gets the
/// number of the run, to rotate buffers.
using TimedWork = std::function<Seconds(std::int64_t run)>;
/// Called on each member's thread.
using PrepareWork = std::function<TimedWork(std::int64_t member)>;

/// How long and how often to measure.
struct Effort {
  std::int64_t samples = kLeast;  ///< per core
  Seconds sample_time{200e-6};    ///< short work is repeated until a sample takes about this long
  static constexpr std::int64_t kLeast = 7;
};

/// The time that the clock adds to a timing: the least time between two readings.
Seconds clock_overhead();

/// Time of one run while all members do the same, from all their samples. Members start each sample
/// together. Repeated once when unsteady; the steadier of the two is returned.
Sample measure_together(std::int64_t members, const PrepareWork& prepare, const Effort& effort);

}  // namespace plimsoll
