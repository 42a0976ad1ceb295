// Op bench: times bench cases through a Backend, on every core at once.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "calibrate/bench_case.h"
#include "calibrate/crew.h"
#include "runtime/backend.h"

namespace plimsoll {

/// Writes values that keep every kind finite and away from denormals (0.1 to 1; i32: ids). Scalars
/// are those of a step whose gradients are finite: updates do their work.
void fill_operand(const Tensor& tensor, std::int64_t ids, std::byte* at);

/// Memory, workspace and backend of every core, kept for all measurements.
class OpBench {
 public:
  /// Operands rotate over `footprint` bytes per core, so that they come from memory, except that
  /// BenchCase::fresh and in_frame ones are written before each timed run; a case whose operands
  /// are larger takes what it needs.
  OpBench(std::string_view backend, std::int64_t cores, Bytes footprint);
  ~OpBench();

  /// All cores run the op at once, each on its own operands.
  Sample measure(const BenchCase& bench_case, const Effort& effort);
  /// The op on the calling thread, as one core runs it; no other measurement meanwhile.
  TimedWork work(const BenchCase& bench_case) { return prepare(*members_.front(), bench_case); }
  std::int64_t cores() const { return std::int64_t(members_.size()); }

 private:
  struct Member;
  TimedWork prepare(Member& member, const BenchCase& bench_case);

  Bytes footprint_;
  Seconds clock_overhead_;
  std::vector<std::byte> text_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace plimsoll
