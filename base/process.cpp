// Reads limits and states of processes from Linux. The limit of memory is that for data
// (RLIMIT_DATA), which counts what only this process writes to.
#include "base/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

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

/// Returns the files that may limit the memory of this process's control group and of those that it
/// lies in. /proc/self/cgroup has lines "0::/PATH" in version 2 of cgroups, and "N:memory:/PATH" in
/// version 1.
std::vector<std::filesystem::path> limits_of_groups() {
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::vector<std::filesystem::path> files;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const bool second = line.starts_with("0::");
    const std::size_t at = line.find(":memory:/");
    if (!second && at == line.npos) continue;
    const std::filesystem::path top = second ? root : root / "memory";
    const std::string path = second ? line.substr(4) : line.substr(at + 9);
    for (std::filesystem::path group = path;; group = group.parent_path()) {
      files.push_back(top / group / (second ? "memory.max" : "memory.limit_in_bytes"));
      if (group.empty()) break;
    }
  }
  return files;
}

}  // namespace

std::optional<Bytes> machine_memory() {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::optional<std::int64_t> least;
  if (pages > 0 && page > 0) least = pages * page;
  for (const std::filesystem::path& file : limits_of_groups()) {
    // A group without a limit says "max", or a huge number.
    std::int64_t bytes = 0;
    if (std::ifstream(file) >> bytes && bytes > 0) least = std::min(least.value_or(bytes), bytes);
  }
  return least ? std::optional(Bytes(*least)) : std::nullopt;
}

void limit_memory(Bytes most) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
  const auto wanted = rlim_t(most.count() + data_of_process());
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_DATA, &limit);
}

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
