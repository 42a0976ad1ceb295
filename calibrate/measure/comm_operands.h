// The communications to be timed get operands, and the data that arrives is checked. This header is
// internal to calibrate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/units.h"
#include "calibrate/measure/timed_work.h"
#include "graph/op.h"
#include "runtime/communicator.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// A DeviceBlock is device memory of one owner.
using DeviceBlock = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
DeviceBlock allocate_on(RankDevice& device, Bytes size);

/// CommOperands is the memory on which one rank works: its operands (f32), which rotate over
/// `footprint` bytes, and other memory that is touched while operands are written.
class CommOperands {
 public:
  /// The memory is the host's, or that of `device`. On a device the other memory is `footprint`
  /// bytes for any payload, and half of it is written. Meanwhile the host enqueues the
  /// communication.
  CommOperands(Bytes payload, Bytes footprint, RankDevice* device = nullptr);

  /// Returns the i-th operand, just written by the member `index` of its group. It has the same
  /// values each time. On a device the copies that write it are enqueued.
  std::span<float> produce(std::int64_t i, std::int64_t index);
  /// Returns arrived() for an operand that produce() returned.
  bool has_arrived(OpKind kind, std::int64_t index, std::int64_t size, std::span<float> operand);

 private:
  std::span<float> produce_on_device(std::int64_t i, std::int64_t index);

  Bytes payload_;
  std::int64_t sets_;
  Bytes beside_;
  AlignedMemory pool_, other_;
  RankDevice* device_;
  DeviceBlock device_pool_, device_other_, pattern_;
};

/// Returns whether the operand of member `index` of `size` holds the result of the communication on
/// the values that produce() wrote on all members. For a send, whose members are sender and
/// receiver, it checks the receiver's operand.
bool arrived(OpKind kind, std::int64_t index, std::int64_t size, std::span<const float> operand);

/// Posts a communication over the group of axis dp. A send goes to the next stage from member 0,
/// and is received from the previous stage on member 1. With `label.described` its times are those
/// of the device, where it has some.
Communicator::Ticket post_bench(Communicator& communicator, OpKind kind, std::int64_t index,
                                std::span<float> operand,
                                const CommunicationLabel& label = {0, "calibrate"});

}  // namespace plimsoll
