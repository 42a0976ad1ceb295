// The programs with one MPI process per rank start MPI in the same way.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/comm/mpi/world.h"
#include "runtime/command/run_command.h"
#ifdef PLIMSOLL_NCCL
#include "runtime/comm/nccl/communicator.h"
#endif

namespace plimsoll {

/// Returns a function that makes `world`, which has to outlive the command: with NCCL where the
/// program is built with it.
inline StartProcesses start_mpi(int& argc, char**& argv, std::unique_ptr<MpiWorld>& world) {
  return [&](std::chrono::milliseconds deadline) -> Processes& {
    world = std::make_unique<MpiWorld>(argc, argv, deadline);
#ifdef PLIMSOLL_NCCL
    world->set_device_communicator(make_nccl_communicator);
#endif
    return *world;
  };
}

}  // namespace plimsoll
