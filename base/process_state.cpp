// States of processes are read from /proc, where files vanish at any time with their process.
#include "base/process_state.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace plimsoll {

ProcessState process_state(int id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string line;
  std::getline(file, line);
  ProcessState found;
  // The name before it is in brackets, and may contain some.
  std::istringstream rest(line.substr(std::min(line.rfind(')') + 1, line.size())));
  rest >> found.state >> found.parent;
  return found;
}

}  // namespace plimsoll
