// planner-run: trains the job of a plan on this machine and writes what it measured.
#include "runtime/command/run_command.h"
#ifdef PLIMSOLL_CUDA
#include "runtime/cuda/backend.h"
#endif

int main(int argc, char** argv) {
#ifdef PLIMSOLL_CUDA
  plimsoll::add_cuda_backend();
#endif
  return plimsoll::run_program_and_exit("planner-run", argc, argv, nullptr);
}
