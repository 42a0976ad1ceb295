// A core bench times bench cases through a Backend, on every core at once, and finds how cores
// share a machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/measure/rank_bench.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/bench_case.h"
#include "models/calibration/calibration.h"
#include "runtime/backend.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Writes values that keep every kind finite and away from denormals (0.1 to 1; for i32 ids).
/// Scalars are those of a step with finite gradients, so that updates do their work.
void fill_operand(const Tensor& tensor, std::int64_t ids, std::byte* at);

/// More than the caches of a core hold, so that rotated operands come from memory.
inline constexpr Bytes kCoreFootprint{std::int64_t{32} << 20};

/// A CoreBench keeps the memory, workspace and backend of every core for all measurements.
class CoreBench final : public RankBench {
 public:
  /// Operands rotate over `footprint` bytes per core, so that they come from memory. Operands in
  /// BenchCase::fresh and in_frame are written before each timed run instead. A case with larger
  /// operands takes the memory that it needs.
  CoreBench(std::string_view backend, std::int64_t cores, Bytes footprint);
  ~CoreBench() override;

  bool supports(const BenchCase&) const override { return true; }
  /// Times a case that all cores run at once, each on its own operands.
  Sample measure(const BenchCase& bench_case, const Sampling& sampling) override;
  /// Returns work that runs on the calling thread, as one core runs it.
  std::unique_ptr<RepeatedWork> repeated(const BenchCase& bench_case) override;
  std::int64_t cores() const { return std::int64_t(members_.size()); }

 private:
  struct Member;
  class OnOneCore;
  TimedWork prepare(Member& member, const BenchCase& bench_case);

  Bytes footprint_;
  Seconds clock_overhead_;
  std::vector<std::byte> text_;
  std::vector<std::unique_ptr<Member>> members_;
};

/// A CoreSharing is for the machine with the most processes for each core that they may use. Hosts
/// of one machine (network namespaces, containers) count as one, which the kernel's boot id shows.
struct CoreSharing {
  std::int64_t processes = 1, cores = 1;
  /// The time of an op when all processes compute, relative to its time when it is not interrupted.
  /// It is 1 where there are as many cores as processes.
  double times = 1;
};

/// All processes call it, and run `bench_case` for `horizon` where they share cores. Timings of
/// single ops do not show sharing: ops are shorter than a turn of the scheduler, so the median op
/// is not interrupted. The number of ops that all processes run in `horizon` shows it. The result
/// is process 0's. It is at most the number of processes for each core, since a larger slowdown has
/// other causes.
CoreSharing measure_core_sharing(Processes& processes, RankBench& bench,
                                 const BenchCase& bench_case, Seconds horizon,
                                 std::chrono::milliseconds deadline);

/// Multiplies the times of ops and products by it, and says so in `versions`. It changes nothing
/// where no cores are shared.
void apply(const CoreSharing& sharing, Calibration& calibration);

}  // namespace plimsoll
