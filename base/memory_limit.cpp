// The limit is that of Linux for data (RLIMIT_DATA), which counts what only this process writes to.
#include "base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace plimsoll {
namespace {

/// Returns the bytes that this process has of what the limit counts.
std::int64_t data_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == "VmData:" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace

Bytes machine_memory() {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::int64_t least = pages > 0 && page > 0 ? pages * page : 0;
  // Version 2 of cgroups, and version 1. A group without a limit says "max", or a huge number.
  for (const char* const name :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::int64_t bytes = 0;
    if (std::ifstream(name) >> bytes && bytes > 0)
      least = least > 0 ? std::min(least, bytes) : bytes;
  }
  return Bytes(least);
}

void limit_memory(Bytes most) {
  rlimit limit = {};
  if (most <= Bytes(0) || getrlimit(RLIMIT_DATA, &limit) != 0) return;
  const auto wanted = rlim_t(most.count() + data_of_process());
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace plimsoll
