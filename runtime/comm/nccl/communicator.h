// The NCCL communicator: one process and one GPU per rank, operands in device memory.
//
// No machine with two GPUs was at hand: it has run on emulated GPUs after NCCL's manual only
// (tests/cuda_on_cpu/nccl.cpp).
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "graph/program.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Process 0's id is shared by `processes`; from the communicator of all ranks one is split off for
/// every group and stream that the Programs communicate over, and one for every pair of stages that
/// send to each other, per direction: NCCL runs the operations of a communicator in their order.
/// Every process calls it.
///
/// Posting enqueues on a stream of the GPU per Stream of the Program, behind what the rank's
/// kernels have been given so far; waiting lets the kernels wait, not the host. Where times are
/// asked for (CommunicationLabel::described) the host waits, too. Sums are taken in NCCL's order
/// and type: unlike the other communicators' they depend on how many ranks share them.
///
/// Asynchronous errors are looked for at every post and wait; a kernel that never ends is reported
/// by whoever waits for the rank's stream (RankDevice::finish), and abort() stops it.
std::unique_ptr<Communicator> make_nccl_communicator(Processes& processes,
                                                     std::span<const Program> programs,
                                                     std::chrono::milliseconds deadline,
                                                     RankDevice& device);

}  // namespace plimsoll
