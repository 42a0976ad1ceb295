// The MPI communicator has one rank per process. It uses MPI's collectives, but takes sums in
// ascending rank order.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "graph/program.h"
#include "runtime/comm/mpi/world.h"
#include "runtime/communicator.h"

namespace plimsoll {

/// Splits the world into a communicator for every group and stream over which the Programs
/// communicate. MPI matches collectives by their order on a communicator, and streams do not wait
/// for each other. Every process calls it.
///
/// MPI does not fix the order of a sum, and has no 16-bit floats, so sums are taken here. Each
/// member gets its range from all others (MPI_Ialltoallv) and adds in ascending rank order, as the
/// local communicator does (runtime/comm/transfer.h). The sums are then gathered (MPI_Iallgatherv).
/// This moves the bytes of a ring, and gives bit for bit the results of the local communicator.
///
/// Communications progress while kernels run. While any is under way, a thread progresses all every
/// kProgressInterval, and the rank itself does so whenever it waits.
std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world,
                                                    std::span<const Program> programs,
                                                    std::chrono::milliseconds deadline);

/// The pause between two polls of the progress thread. Each poll takes a few microseconds from the
/// kernels of its core.
inline constexpr std::chrono::microseconds kProgressInterval{100};

/// The bytes of a sum that a member adds up at a time. The terms, one for each member, are received
/// into memory outside the arena.
inline constexpr Bytes kSumChunk{std::int64_t{1} << 20};

}  // namespace plimsoll
