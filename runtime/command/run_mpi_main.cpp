// planner-run-mpi: planner-run with one MPI process per rank, started by mpirun or srun.
#include <memory>

#include "runtime/command/run_command.h"
#include "runtime/command/start_mpi.h"
#ifdef PLIMSOLL_CUDA
#include "base/command_line.h"
#include "runtime/cuda/backend.h"
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
  return run_program_and_exit("planner-run-mpi", argc, argv, start_mpi(argc, argv, world));
}
