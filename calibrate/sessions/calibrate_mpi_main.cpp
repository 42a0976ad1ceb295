// planner-calibrate-mpi: planner-calibrate of a cluster, one MPI process per rank, started by
// mpirun or srun.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include "base/command_line.h"
#include "calibrate/sessions/calibrate_command.h"
#include "runtime/command/start_mpi.h"
#ifdef PLIMSOLL_CUDA
#include "runtime/cuda/backend.h"
#endif

int main(int argc, char** argv) {
  using namespace plimsoll;
  FactsOfDevice facts = nullptr;
#ifdef PLIMSOLL_CUDA
  facts = cuda_device_facts;
#endif
  std::unique_ptr<MpiWorld> world;
  const auto body = [&] {
#ifdef PLIMSOLL_CUDA
    add_cuda_backend();
#endif
    return calibrate_command(argc, argv, start_mpi(argc, argv, world), facts);
  };
  const int code = run_program("planner-calibrate-mpi", std::cref(body));
  if (code == int(ExitCode::ok)) return code;
  // Without finalising: others may not come.
  std::fflush(nullptr);
  std::_Exit(code);
}
