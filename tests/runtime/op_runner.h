// Runs an op case on a backend.
#pragma once

#include <memory>
#include <span>

#include "base/units.h"
#include "tests/runtime/op_cases.h"

namespace plimsoll {

/// A case prepared on a backend with memory of its own: one block per tensor, shared where the op
/// works in place. The case must outlive it.
class PreparedCase {
 public:
  PreparedCase(Backend& backend, const OpCase& c, Bytes workspace = Bytes(std::int64_t{1} << 20));
  ~PreparedCase();
  /// Restores the contents from before the run and fills the workspace with NaN.
  void reset();
  void run();
  /// For backends with a device: time of a run there, of `runs` behind as many that are not timed,
  /// so that launching is not in it.
  Seconds time_on_device(std::int64_t runs);
  Values values() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Prepares, runs once and reads all tensors.
Values run_case(Backend& backend, const OpCase& c);

}  // namespace plimsoll
