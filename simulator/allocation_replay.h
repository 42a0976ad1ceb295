// Allocation replay: a step's own sequence of allocations through the framework's allocator.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "models/framework.h"
#include "simulator/block_allocator.h"

namespace plimsoll {

/// Tensors of one name that are alive together.
struct AliveTensors {
  std::string name;  ///< of the tensor in its routine, of the buffer where it has one to itself
  TensorRole role = TensorRole::activation;
  std::int64_t count = 0;
  Bytes bytes;  ///< of all of them, as the allocator counts them
  bool operator==(const AliveTensors&) const = default;
};

/// What one class of ranks takes of the framework's allocator.
struct AllocatorUse {
  Bytes allocated;      ///< peak of the blocks handed out, as their allocator counts them
  Bytes reserved;       ///< peak of what it took of the driver
  BytesByRole by_role;  ///< of `allocated`, at its first peak
  std::vector<AliveTensors> alive;  ///< then, largest first; where asked for
  std::int64_t retries = 0;  ///< times that it gave back all it kept, since the driver had no more
  bool out_of_memory = false;  ///< the rest is as far as it came
};

enum class AliveAtPeak : std::uint8_t { leave_out, list };
/// Micro-batches that find the allocator as the one before did: left out, or replayed all the same,
/// which gives the same.
enum class AlikeMicroBatches : std::uint8_t { leave_out, replay };

/// Every tensor for itself, from the op that writes it first to the one that uses it last: frame
/// temporaries within their call; of what is saved each tensor to its last use in the last call
/// that has it; borders, sent and received tensors, gathers and buckets as the Program's buffers,
/// which end where the host has waited for their communication (as record_stream has it).
/// Parameters, masters and optimizer state tensor by tensor, gradients as one buffer, all before
/// the first step, but optimizer state in the first update where the framework makes it there.
/// Steps are replayed, at most four, until one takes no more than those before.
///
/// `limit`: what the driver has for the allocator; beyond it the rank is out of memory. The
/// framework's allocator is not AllocatorKind::arena.
AllocatorUse replay_allocations(const Program& program, const Framework& framework, Bytes limit,
                                AliveAtPeak alive = AliveAtPeak::leave_out,
                                AlikeMicroBatches alike = AlikeMicroBatches::leave_out);

}  // namespace plimsoll
