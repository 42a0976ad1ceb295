// The `planner` executable: it runs the command that its command line names.
#include "planner/commands/dispatch.h"

int main(int argc, char** argv) {
  return plimsoll::run_program("planner", [&] { return plimsoll::dispatch(argc, argv); });
}
