// The MPI communicator: one rank per process; collectives by MPI's own, sums in ascending rank
// order.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "graph/program.h"
#include "runtime/comm/mpi/world.h"
#include "runtime/communicator.h"

namespace plimsoll {

/// Splits the world into a communicator for every group and stream that the Programs communicate
/// over: MPI matches collectives by their order on a communicator, and streams do not wait for each
/// other. Every process calls it.
///
/// MPI leaves the order of a sum open, and has no 16-bit floats. So sums are taken here: each
/// member gets its range of all others (MPI_Ialltoallv), adds in ascending rank order as the local
/// communicator does (runtime/comm/transfer.h), and the sums are gathered (MPI_Iallgatherv): the
/// bytes of a ring, and bitwise the results of the local communicator.
///
/// Communications go on while kernels run. While any are under way, a thread moves them on every
/// kLookAfter, and the rank itself whenever it waits.
std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world,
                                                    std::span<const Program> programs,
                                                    std::chrono::milliseconds deadline);

/// Pause between two looks of the progress thread: each takes a few microseconds from the kernels
/// of its core.
inline constexpr std::chrono::microseconds kLookAfter{100};

/// Bytes of a sum that a member adds up at a time. The terms, one for each member, are received
/// into memory outside the arena.
inline constexpr Bytes kSumChunk{std::int64_t{1} << 20};

}  // namespace plimsoll
