// planner-run: trains the job of a plan on this machine and writes what it measured.
#include "runtime/command/run_command.h"
#ifdef PLIMSOLL_CUDA
#include "base/command_line.h"
#include "runtime/cuda/backend.h"
#endif

int main(int argc, char** argv) {
#ifdef PLIMSOLL_CUDA
  const int code = plimsoll::run_program("planner-run", [] {
    plimsoll::add_cuda_backend();
    return plimsoll::ExitCode::ok;
  });
  if (code != int(plimsoll::ExitCode::ok)) return code;
#endif
  return plimsoll::run_program_and_exit("planner-run", argc, argv, nullptr);
}
