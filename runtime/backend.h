// Backend: where ops run. One small interface, one folder per implementation (null, cpu, cuda).
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

namespace plimsoll {

/// The text that is trained on. Sequence i of step k starts at byte
/// ((k * global_batch + i) * sequence) mod (size - sequence - 1); targets are one byte later.
struct TrainingText {
  std::span<const std::byte> bytes;
  std::int64_t global_batch = 0;
};

/// The facts that a kernel may know about its rank. They outlive the kernels.
struct RankContext {
  const Program* program = nullptr;  ///< segments, buckets, grid
  Coordinates at = {};
  TrainingText text;
  std::span<std::byte> workspace;  ///< library scratch, of the Framework's size
};

/// A range of the flat arenas that this rank owns and updates, cut at segment borders.
struct OwnedRange {
  std::int64_t arena_offset = 0;  ///< elements into the parameter and gradient arenas
  std::int64_t state_offset = 0;  ///< elements into the optimizer-state arenas
  std::int64_t elements = 0;
  double norm_weight = 1;
  std::int64_t segment = 0;  ///< index in Program::segments
  double copies = 1;         ///< ranks that hold, and update, the same elements
  // Attributes, as in Segment.
  bool decay = false;
  std::optional<double> weight_decay;
  bool clip = true;
  double rate = 1;
  std::int64_t group = 0;
};
/// Ascending; paddings belong to no segment and are left out.
std::vector<OwnedRange> owned_ranges(const Program& program, const Coordinates& at);

/// When a kernel runs.
struct RunPosition {
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  std::int64_t layer = 0;  ///< of the call: index of the block instance within its block
};

/// One op, prepared: primitives and argument maps exist, only addresses come per run.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Addresses in the order of the op's inputs and outputs. Must not allocate more than 4 KiB.
  virtual void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs,
                   const RunPosition& position) = 0;
  /// The FLOPs of one run in products, read off the shapes that it multiplies. Kernels that only
  /// move or add values have none.
  virtual Flops flops() const { return Flops(0); }
};

/// One rank's device.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Whether prepare() would succeed, or why not. Communication ops are never asked.
  virtual Verdict supports(const Op& op, std::span<const Tensor> tensors) const = 0;
  virtual std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                          const RankContext& context) = 0;
  /// Called once on the thread that will run this rank's kernels.
  virtual void enter_thread() {}
  /// Where the tensors lie and run() only enqueues; null: in host memory, and a kernel is over when
  /// run() returns.
  virtual RankDevice* device() { return nullptr; }
};

/// By name: "null", "cpu" and those that were added. `local_rank` counts the ranks of this host:
/// backends with several devices share them out by it. Throws UsageError naming those there are.
std::unique_ptr<Backend> make_backend(std::string_view name, std::int64_t local_rank = 0);
/// A backend that is a library of its own, before any is made: a program that links it calls this.
void add_backend(std::string_view name, std::unique_ptr<Backend> (*make)(std::int64_t local_rank));
/// For messages and help: "null, cpu".
std::string backend_names();

}  // namespace plimsoll
