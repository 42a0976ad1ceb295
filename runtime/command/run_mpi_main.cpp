// planner-run-mpi: planner-run with one MPI process per rank, started by mpirun or srun.
#include <cstdlib>
#include <functional>
#include <memory>

#include "base/command_line.h"
#include "runtime/comm/mpi/world.h"
#include "runtime/command/run_command.h"
#ifdef PLIMSOLL_CUDA
#include "runtime/cuda/backend.h"
#endif
#ifdef PLIMSOLL_NCCL
#include "runtime/comm/nccl/communicator.h"
#endif

int main(int argc, char** argv) {
  using namespace plimsoll;
  std::unique_ptr<MpiWorld> world;
  const auto start = [&] {
#ifdef PLIMSOLL_CUDA
    add_cuda_backend();
#endif
    world = std::make_unique<MpiWorld>(argc, argv);
#ifdef PLIMSOLL_NCCL
    world->set_device_communicator(make_nccl_communicator);
#endif
    return ExitCode::ok;
  };
  const int code = run_program("planner-run-mpi", std::cref(start));
  if (code != int(ExitCode::ok)) std::_Exit(code);
  return run_program_and_exit("planner-run-mpi", argc, argv, world.get());
}
