// A RankDevice has memory that the host does not reach, and kernels that are enqueued and run
// later. A backend for an accelerator has one; backends of host memory have none.
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

struct RowOverflow;
struct RunPosition;

/// A RankDevice is the part of an accelerator that one rank uses. Its kernels, fills and copies run
/// in the order in which they were enqueued. Only the rank's thread uses it. Every function may
/// throw EnvironmentError with the driver's reason.
class RankDevice {
 public:
  virtual ~RankDevice() = default;

  /// Returns zeroed memory.
  virtual std::byte* allocate(Bytes size) = 0;
  virtual void free(std::byte* memory) noexcept = 0;
  /// Returns zeroed memory of the host, which copies of the device reach without a stop.
  virtual std::byte* allocate_on_host(Bytes size) = 0;
  virtual void free_on_host(std::byte* memory) noexcept = 0;
  /// Enqueues a fill of every byte.
  virtual void fill(std::byte* to, int value, Bytes size) = 0;
  /// Write and read after all that was enqueued. They are complete when they return.
  virtual void write(std::byte* to, std::span<const std::byte> values) = 0;
  virtual void read(const std::byte* from, std::span<std::byte> values) = 0;
  /// Returns when all that was enqueued is over. Throws EnvironmentError naming `what` after
  /// `deadline`.
  virtual void finish(std::chrono::milliseconds deadline, std::string_view what) = 0;

  /// Returns what the kernels that are over noted about rows without memory.
  virtual RowOverflow& overflow() = 0;

  /// Starts sequence `sequence` of kernels, which are the same in every step, at `position`. It
  /// returns false where the device has replayed the kernels captured in an earlier step, which
  /// then must not be enqueued. Without `may_replay` they are always enqueued one by one.
  virtual bool begin(std::uint32_t sequence, const RunPosition& position, bool may_replay) = 0;
  /// Ends the sequence of a begin() that returned true.
  virtual void end() = 0;

  /// Marks what was enqueued so far, for time_of(). Marks are numbered from 0 since forget_marks().
  virtual std::uint32_t mark() = 0;
  virtual void forget_marks() = 0;
  /// Returns the time from mark 0 to when the device reached this one. Both must be over.
  virtual Picoseconds time_of(std::uint32_t mark) = 0;

  /// Enqueues kernels that do as move_collective() of runtime/comm/transfer.h does: the same sums
  /// in the same order. The memory may be that of other ranks on the same device.
  virtual void move(OpKind kind, const CollectiveParams& params, DType dtype, std::int64_t elements,
                    std::span<const MemberData> members) = 0;
  /// Enqueues a copy.
  virtual void copy(std::byte* to, const std::byte* from, Bytes size) = 0;

  /// Returns a text such as "NVIDIA H200 (GPU 0), driver for CUDA 13.0".
  virtual std::string description() const = 0;
  /// Returns the memory of the whole device that all processes take.
  virtual Bytes memory_used() const = 0;
};

/// DeviceFacts are what an accelerator reports.
struct DeviceFacts {
  std::string name;  ///< e.g. "NVIDIA H200"
  std::string bus;   ///< where it is plugged in; unique among the devices of a host
  Bytes memory;      ///< total as the driver reports it
  std::int64_t multiprocessors = 0;
  int compute_capability = 0;  ///< 10 * major + minor
};

}  // namespace plimsoll
