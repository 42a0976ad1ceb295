// planner-calibrate-mpi: planner-calibrate of a cluster, one MPI process per rank, started by
// mpirun or srun.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include "base/command_line.h"
#include "calibrate/sessions/calibrate_command.h"
#include "runtime/comm/mpi/world.h"
#ifdef PLIMSOLL_CUDA
#include "runtime/cuda/backend.h"
#include "runtime/cuda/facts.h"
#endif
#ifdef PLIMSOLL_NCCL
#include "runtime/comm/nccl/communicator.h"
#endif

int main(int argc, char** argv) {
  using namespace plimsoll;
  FactsOfDevice facts = nullptr;
#ifdef PLIMSOLL_CUDA
  facts = cuda_device_facts;
#endif
  std::unique_ptr<MpiWorld> world;
  const auto start = [&](std::chrono::milliseconds deadline) -> Processes& {
    world = std::make_unique<MpiWorld>(argc, argv, deadline);
#ifdef PLIMSOLL_NCCL
    world->set_device_communicator(make_nccl_communicator);
#endif
    return *world;
  };
  const auto body = [&] {
#ifdef PLIMSOLL_CUDA
    add_cuda_backend();
#endif
    return calibrate_command(argc, argv, start, facts);
  };
  const int code = run_program("planner-calibrate-mpi", std::cref(body));
  if (code == int(ExitCode::ok)) return code;
  // Without finalising: others may not come.
  std::fflush(nullptr);
  std::_Exit(code);
}
