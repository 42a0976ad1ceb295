// The NCCL communicator has one process and one GPU per rank, with operands in device memory.
//
// It has run only on emulated GPUs that follow NCCL's manual (tests/cuda_on_cpu/nccl.cpp), since no
// machine with two GPUs was available.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "graph/program.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Makes the communicator of all ranks with process 0's id, which `processes` share. From it one
/// communicator is split off for every group and stream over which the Programs communicate. One
/// more is split off for every pair of stages that send to each other, and direction. NCCL runs the
/// operations of a communicator in their order. Every process calls it.
///
/// Each Stream of the Program has a stream of the GPU. A post enqueues on it, behind the kernels
/// that the rank has enqueued so far. A wait lets the kernels wait, not the host. Where times are
/// wanted (CommunicationLabel::described) the host waits, too. Sums are taken in NCCL's order and
/// type, so unlike with other communicators they depend on the number of ranks that share them.
///
/// Every post and wait checks for asynchronous errors. A kernel that never ends is reported by the
/// wait for the rank's stream (RankDevice::finish), and abort() stops it. Messages about deadlines
/// name the communication and the rank of this host that keeps the others waiting
/// (Processes::status_board).
std::unique_ptr<Communicator> make_nccl_communicator(Processes& processes,
                                                     std::span<const Program> programs,
                                                     std::chrono::milliseconds deadline,
                                                     RankDevice& device);

}  // namespace plimsoll
