// Timed work runs on every core at once and is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Runs `work(member)` on `size` threads and waits for all of them. Rethrows the first exception.
/// Throws std::system_error where the machine does not start that many; then none works.
void run_together(std::int64_t size, const std::function<void(std::int64_t member)>& work);

/// Memory aligned to 64 bytes, not initialised.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(Bytes size);
  std::span<std::byte> memory() const { return {aligned_, std::size_t(size_.count())}; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::byte* aligned_ = nullptr;
  Bytes size_;
};

/// Runs one core's work once and returns the time that it took. `run` is the number of the run, by
/// which work rotates its buffers.
using TimedWork = std::function<Seconds(std::int64_t run)>;
/// Prepares the work of one member, on the member's thread.
using PrepareWork = std::function<TimedWork(std::int64_t member)>;

/// How often and how long to measure.
struct Sampling {
  std::int64_t samples = kLeast;  ///< per core
  Seconds sample_time{200e-6};    ///< short work is repeated until a sample takes about this long
  static constexpr std::int64_t kLeast = 7;
};

/// Returns the time that the clock adds to a timing: the shortest time between two readings.
Seconds clock_overhead();

/// Returns the time of one run, from the samples of all members, which start each sample together.
/// An unsteady measurement is repeated once, and the steadier of the two is returned.
Sample measure_together(std::int64_t members, const PrepareWork& prepare, const Sampling& sampling);

}  // namespace plimsoll
