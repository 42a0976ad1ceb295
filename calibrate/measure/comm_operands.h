// Operands of the communications to be timed, and what must arrive. Internal to calibrate.
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

/// Device memory of one owner.
using DeviceBlock = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
DeviceBlock allocate_on(RankDevice& device, Bytes size);

/// The memory that one rank works on: its operands (f32), which rotate over `footprint` bytes, and
/// the other memory that producing them touches.
class CommOperands {
 public:
  /// In memory of the host, or of `device`. What a device touches beside an operand is `footprint`,
  /// half of it written, whatever the payload: meanwhile the host enqueues what comes next.
  CommOperands(Bytes payload, Bytes footprint, RankDevice* device = nullptr);

  /// The i-th operand, freshly written by the member `index` of its group; always the same one. On
  /// a device the copies that write it are enqueued.
  std::span<float> produce(std::int64_t i, std::int64_t index);
  /// arrived(), of an operand that produce() returned.
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

/// Whether the operand of member `index` of `size` holds what the communication makes of what
/// produce() wrote on all members; of a send, whose members are sender and receiver: what the
/// receiver got.
bool arrived(OpKind kind, std::int64_t index, std::int64_t size, std::span<const float> operand);

/// Over the group of axis dp; of a send: to the next stage from member 0, from the one before on
/// member 1. With `label.described` its times are those of the device, where it has some.
Communicator::Ticket post_bench(Communicator& communicator, OpKind kind, std::int64_t index,
                                std::span<float> operand,
                                const CommunicationLabel& label = {0, "calibrate"});

}  // namespace plimsoll
