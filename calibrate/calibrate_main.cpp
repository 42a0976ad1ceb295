// planner-calibrate: measures this machine and writes its calibration and cluster files.
#include "base/command_line.h"
#include "calibrate/calibrate_command.h"

int main(int argc, char** argv) {
  using namespace plimsoll;
  return run_program("planner-calibrate", [&] { return calibrate_command(argc, argv, nullptr); });
}
