// A core bench times bench cases through a Backend, on every core at once.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "calibrate/measure/rank_bench.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/bench_case.h"
#include "runtime/backend.h"

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

}  // namespace plimsoll
