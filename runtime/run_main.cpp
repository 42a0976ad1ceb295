// planner-run: trains the job of a plan on this machine and writes what it measured.
#include "runtime/run_command.h"

int main(int argc, char** argv) {
  return plimsoll::run_and_leave("planner-run", argc, argv, nullptr);
}
