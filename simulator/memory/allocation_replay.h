// Allocation replay: a step's own sequence of allocations through the framework's allocator.
#pragma once

#include <optional>

#include "base/units.h"
#include "graph/program.h"
#include "models/framework/framework.h"
#include "simulator/memory/tensor_blocks.h"

namespace plimsoll {

enum class AliveAtPeak : std::uint8_t { leave_out, list };
/// Whether cycles of alike micro-batches behind the first eight of a step are left out or replayed.
/// Both hand out the same bytes; the reserved bytes differ by 0.5 % at most.
enum class AlikeMicroBatches : std::uint8_t { leave_out, replay };

/// Replays the allocations of a rank. Each tensor lives from the op that writes it first to the op
/// that uses it last:
///  - A temporary in the frame lives within its call. A saved tensor lives to its last use in the
///    last call that has it.
///  - Borders, sent and received tensors, gathers and buckets live as the Program's buffers do.
///  They
///    end where the host has waited for their communication (as record_stream has it).
///  - Parameters, masters and optimizer state are allocated tensor by tensor, gradients as one
///    buffer, all before the first step. Some frameworks make optimizer state in the first update.
///  - Some frameworks hold gathered parameters, gradients and transfers of pipelines in their own
///    way (ShardMemory, BorderMemory).
/// Steps are replayed, at most four, until one takes no more than those before.
///
/// `limit` is what the driver has for the allocator; beyond it the rank is out of memory. The
/// framework's allocator is not AllocatorKind::arena.
AllocatorUse replay_allocations(const Program& program, const Framework& framework, Bytes limit,
                                AliveAtPeak alive = AliveAtPeak::leave_out,
                                AlikeMicroBatches alike = AlikeMicroBatches::leave_out);

/// Replays on a device that has `room` for the allocator. Where memory is short, the allocator
/// gives its free blocks back to the driver. Returns nothing where that is not enough.
std::optional<AllocatorUse> replay_within(const Program& program, const Framework& framework,
                                          Bytes room, AliveAtPeak alive = AliveAtPeak::leave_out);
/// Replays on a device with this much room. Where a step does not fit, the result says what it
/// would take on a device with more memory.
AllocatorUse replay_on_device(const Program& program, const Framework& framework, Bytes room,
                              AliveAtPeak alive = AliveAtPeak::leave_out);

}  // namespace plimsoll
