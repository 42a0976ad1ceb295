// planner-calibrate: measures this machine and writes its calibration and cluster files.
#include <functional>

#include "base/command_line.h"
#include "calibrate/sessions/calibrate_command.h"
#ifdef PLIMSOLL_CUDA
#include "runtime/cuda/backend.h"
#endif

int main(int argc, char** argv) {
  using namespace plimsoll;
  FactsOfDevice facts = nullptr;
#ifdef PLIMSOLL_CUDA
  facts = cuda_device_facts;
#endif
  const auto body = [&] {
#ifdef PLIMSOLL_CUDA
    add_cuda_backend();
#endif
    return calibrate_command(argc, argv, nullptr, facts);
  };
  return run_program("planner-calibrate", std::cref(body));
}
