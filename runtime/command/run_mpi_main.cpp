// planner-run-mpi: planner-run with one MPI process per rank, started by mpirun or srun.
#include <chrono>
#include <memory>

#include "runtime/comm/mpi/world.h"
#include "runtime/command/run_command.h"
#ifdef PLIMSOLL_CUDA
#include "base/command_line.h"
#include "runtime/cuda/backend.h"
#endif
#ifdef PLIMSOLL_NCCL
#include "runtime/comm/nccl/communicator.h"
#endif

int main(int argc, char** argv) {
  using namespace plimsoll;
#ifdef PLIMSOLL_CUDA
  const int code = run_program("planner-run-mpi", [] {
    add_cuda_backend();
    return ExitCode::ok;
  });
  if (code != int(ExitCode::ok)) return code;
#endif
  std::unique_ptr<MpiWorld> world;
  const auto start = [&](std::chrono::milliseconds deadline) -> Processes& {
    world = std::make_unique<MpiWorld>(argc, argv, deadline);
#ifdef PLIMSOLL_NCCL
    world->set_device_communicator(make_nccl_communicator);
#endif
    return *world;
  };
  return run_program_and_exit("planner-run-mpi", argc, argv, start);
}
