// Allocation replay: a step's own sequence of allocations through the framework's allocator.
#pragma once

#include <optional>

#include "base/units.h"
#include "graph/program.h"
#include "models/framework/framework.h"
#include "simulator/memory/tensor_blocks.h"

namespace plimsoll {

enum class AliveAtPeak : std::uint8_t { leave_out, list };
/// Cycles of alike micro-batches behind the first eight of a step: left out, or replayed all the
/// same. Bytes handed out are the same for both; what is reserved differs by 0.5 % at most.
enum class AlikeMicroBatches : std::uint8_t { leave_out, replay };

/// Every tensor for itself, from the op that writes it first to the one that uses it last: frame
/// temporaries within their call; of what is saved each tensor to its last use in the last call
/// that has it; borders, sent and received tensors, gathers and buckets as the Program's buffers,
/// which end where the host has waited for their communication (as record_stream has it).
/// Parameters, masters and optimizer state tensor by tensor, gradients as one buffer, all before
/// the first step, but optimizer state in the first update where the framework makes it there.
/// Gathered parameters, gradients and what pipelines transfer as the framework has them instead
/// (ShardMemory, BorderMemory). Steps are replayed, at most four, until one takes no more than
/// those before.
///
/// `limit`: what the driver has for the allocator; beyond it the rank is out of memory. The
/// framework's allocator is not AllocatorKind::arena.
AllocatorUse replay_allocations(const Program& program, const Framework& framework, Bytes limit,
                                AliveAtPeak alive = AliveAtPeak::leave_out,
                                AlikeMicroBatches alike = AlikeMicroBatches::leave_out);

/// With `room` for the allocator on its device: where memory is short it gives back what it keeps;
/// nothing where that is not enough.
std::optional<AllocatorUse> replay_within(const Program& program, const Framework& framework,
                                          Bytes room, AliveAtPeak alive = AliveAtPeak::leave_out);
/// Replays on a device with that much room. Where a step does not fit, the result is what it would
/// take with more memory.
AllocatorUse replay_on_device(const Program& program, const Framework& framework, Bytes room,
                              AliveAtPeak alive = AliveAtPeak::leave_out);

}  // namespace plimsoll
