// Reads /proc, where files vanish at any time with their process.
#include "runtime/comm/mpi/launched.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/process_state.h"

namespace plimsoll {
namespace {

/// Variables in which launchers pass the rank: by PMIx, by PMI, and srun by itself.
constexpr std::array<std::string_view, 3> kRankIn = {"PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};

}  // namespace

std::string name_of_process(int id) {
  std::ifstream file(fmt::format("/proc/{}/environ", id));
  for (std::string variable; std::getline(file, variable, '\0');) {
    const std::size_t equals = variable.find('=');
    const auto name = std::string_view(variable).substr(0, equals);
    if (std::find(kRankIn.begin(), kRankIn.end(), name) == kRankIn.end()) continue;
    const std::string rank = variable.substr(std::min(equals, variable.size() - 1) + 1);
    const bool numbered =
        !rank.empty() && rank.find_first_not_of("0123456789") == std::string::npos;
    if (numbered) return "rank " + rank;
  }
  return fmt::format("process {}", id);
}

std::string stopped_processes() {
  const int launcher = getppid();
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int id = 0;
    const auto [stop, bad] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (bad != std::errc() || stop != name.data() + name.size()) continue;
    const ProcessState found = process_state(id);
    const bool stopped = found.state == 'T' || found.state == 't';
    if (stopped && found.parent == launcher) names.push_back(name_of_process(id) + " is stopped");
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace plimsoll
