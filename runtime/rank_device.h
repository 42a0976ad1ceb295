// RankDevice: memory that the host does not reach, and kernels that are enqueued and run later. A
// backend adds one for an accelerator; backends of host memory have none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"
#include "graph/op.h"
#include "graph/tensor.h"
#include "runtime/comm/transfer.h"

namespace plimsoll {

struct RunPosition;

/// The part of an accelerator that one rank uses. Its kernels run in the order in which they were
/// enqueued, and so do fills and copies. One thread uses it, that of the rank; every function may
/// throw EnvironmentError with the driver's reason.
class RankDevice {
 public:
  virtual ~RankDevice() = default;

  /// Zeroed.
  virtual std::byte* allocate(Bytes size) = 0;
  virtual void free(std::byte* memory) noexcept = 0;
  /// Enqueued: sets every byte.
  virtual void fill(std::byte* to, int value, Bytes size) = 0;
  /// After all that was enqueued; complete when they return.
  virtual void write(std::byte* to, std::span<const std::byte> values) = 0;
  virtual void read(const std::byte* from, std::span<std::byte> values) = 0;
  /// Returns when all that was enqueued is over. EnvironmentError naming `what` after `deadline`.
  virtual void finish(std::chrono::milliseconds deadline, std::string_view what) = 0;

  /// Starts sequence `sequence` of kernels, the same ones in every step, at `position`. False: the
  /// device has replayed them as they were captured in an earlier step, they must not be enqueued.
  /// Without `may_replay` they always are, one by one.
  virtual bool begin(std::uint32_t sequence, const RunPosition& position, bool may_replay) = 0;
  /// After a begin() that was true.
  virtual void end() = 0;

  /// Marks what was enqueued so far, for time_of(); numbered from 0 since forget_marks().
  virtual std::uint32_t mark() = 0;
  virtual void forget_marks() = 0;
  /// From mark 0 to when the device reached this one; both must be over.
  virtual Picoseconds time_of(std::uint32_t mark) = 0;

  /// As move_collective() of runtime/comm/transfer.h, by kernels: the same sums in the same order.
  /// Enqueued; the memory may be that of other ranks on the same device.
  virtual void move(OpKind kind, const CollectiveParams& params, DType dtype, std::int64_t elements,
                    std::span<const MemberData> members) = 0;
  /// Enqueued.
  virtual void copy(std::byte* to, const std::byte* from, Bytes size) = 0;

  /// E.g. "NVIDIA H200 (GPU 0), driver for CUDA 13.0".
  virtual std::string description() const = 0;
  /// Memory of the whole device that is taken, by whomever.
  virtual Bytes memory_used() const = 0;
};

}  // namespace plimsoll
