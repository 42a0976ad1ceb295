// planner-calibrate-mpi: planner-calibrate of a cluster, one MPI process per rank, started by
// mpirun or srun.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/command_line.h"
#include "calibrate/calibrate_command.h"
#include "runtime/comm/mpi/world.h"

int main(int argc, char** argv) {
  using namespace plimsoll;
  std::unique_ptr<MpiWorld> world;
  const int code = run_program("planner-calibrate-mpi", [&] {
    world = std::make_unique<MpiWorld>(argc, argv);
    return calibrate_command(argc, argv, world.get());
  });
  if (code == int(ExitCode::ok)) return code;
  // Without finalising: others may not come.
  std::fflush(nullptr);
  std::_Exit(code);
}
