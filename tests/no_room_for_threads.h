// A process of a test in which no further thread starts.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace plimsoll {

/// Leaves this process 4 MiB of address space, in which no thread has its stack.
inline void leave_no_room_for_threads() {
  std::ifstream sizes("/proc/self/statm");
  rlim_t pages = 0;
  sizes >> pages;
  const rlim_t most = pages * rlim_t(::sysconf(_SC_PAGESIZE)) + (rlim_t{4} << 20);
  const rlimit limit = {most, most};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace plimsoll
