// A Backend runs ops. It is one small interface, with one folder for each implementation (null,
// cpu, cuda).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "graph/grid.h"
#include "graph/op.h"
#include "graph/program.h"
#include "runtime/rank_device.h"
#include "runtime/rate_schedule.h"

namespace plimsoll {

class ExampleRows;

/// The text on which a job trains. Sequence i of step k starts at byte ((k * global_batch + i) *
/// sequence) mod (size - sequence - 1). Targets are one byte later.
struct TrainingText {
  std::span<const std::byte> bytes;
  std::int64_t global_batch = 0;
  /// A text that is not trained on. Step -1 - b reads its b-th global batch, and drops nothing out.
  std::span<const std::byte> held_out = {};
  /// The examples of which sequences consist; null: a sequence is one.
  const ExampleRows* examples = nullptr;
};

/// A RunPosition says for which step, micro-batch and layer a kernel runs.
struct RunPosition {
  std::int64_t step = 0;  ///< negative: of the text that is held out
  std::int64_t micro_batch = 0;
  std::int64_t layer = 0;  ///< as Call::layer
  std::int64_t part = 0;   ///< as Call::part
};

/// Returns "step 5" for step 4, which is the fifth, and "held-out batch 1" for step -1.
std::string step_name(std::int64_t step);

/// A RowOverflow says which experts of a rank first got more rows than there is memory for, and
/// where in the run. Zeros: none did. Rows without memory are not moved, so that the step goes on
/// without them.
struct RowOverflow {
  std::int64_t rows = 0, most = 0;
  std::int64_t first = 0, last = 0;  ///< experts
  RunPosition position;
};

/// A RankContext has the facts that a kernel may know about its rank. They outlive the kernels.
struct RankContext {
  const Program* program = nullptr;  ///< segments, buckets, grid
  Coordinates at = {};
  TrainingText text;
  std::span<std::byte> workspace;  ///< scratch memory of libraries, with the Framework's size
  RateSchedule rates;              ///< of the learning rate
  /// Kernels on the host note here that rows have no memory. A RankDevice has a place of its own.
  RowOverflow* overflow = nullptr;
};

/// An OwnedRange is a range of the flat arenas that this rank owns and updates, cut at segment
/// borders.
struct OwnedRange {
  std::int64_t arena_offset = 0;  ///< elements into the parameter and gradient arenas
  std::int64_t state_offset = 0;  ///< elements into the optimizer-state arenas
  std::int64_t elements = 0;
  double norm_weight = 1;
  std::int64_t segment = 0;  ///< index in Program::segments
  double copies = 1;         ///< ranks that hold, and update, the same elements
  // The next fields are attributes, as in Segment.
  bool decay = false;
  std::optional<double> weight_decay;
  bool clip = true;
  double rate = 1;
  std::int64_t group = 0;
};
/// Returns the ranges in ascending order. Padding belongs to no segment and is left out.
std::vector<OwnedRange> owned_ranges(const Program& program, const Coordinates& at);

/// A Kernel is one prepared op. Its primitives and argument maps exist; only addresses are given
/// for each run.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Runs on addresses in the order of the op's inputs and outputs. It must not allocate more than
  /// 4 KiB.
  virtual void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs,
                   const RunPosition& position) = 0;
  /// Returns the FLOPs of one run in products, as they follow from the shapes that it multiplies.
  /// Kernels that only move or add values have none.
  virtual Flops flops() const { return Flops(0); }
};

/// A Backend runs the ops of one rank.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Returns whether prepare() would succeed, or why it would not. It is never called for
  /// communications.
  virtual Verdict supports(const Op& op, std::span<const Tensor> tensors) const = 0;
  virtual std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                          const RankContext& context) = 0;
  /// Called once on the thread that will run this rank's kernels.
  virtual void enter_thread() {}
  /// Returns the device that holds the tensors, where run() only enqueues. Null: tensors are in
  /// host memory, and a kernel is over when run() returns.
  virtual RankDevice* device() { return nullptr; }
};

/// Makes the backend of a name: "null", "cpu", or one that was added. `local_rank` counts the ranks
/// of this host, and backends with several devices choose one by it. Throws UsageError naming the
/// known backends.
std::unique_ptr<Backend> make_backend(std::string_view name, std::int64_t local_rank = 0);
/// Adds a backend that is a library of its own. A program that links it calls this before it makes
/// any backend.
void add_backend(std::string_view name, std::unique_ptr<Backend> (*make)(std::int64_t local_rank));
/// Returns the names for messages and help: "null, cpu".
std::string backend_names();

}  // namespace plimsoll
