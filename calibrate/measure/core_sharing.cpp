// Processes count the ops that all of them run in a while, to measure how they share cores.
#include "calibrate/measure/core_sharing.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "calibrate/measure/statistics.h"

namespace plimsoll {
namespace {

/// The id of this start of this machine's kernel; empty where the kernel has none.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// "3 7 12": the cores that this process may use.
std::string own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string text;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) text += fmt::format("{} ", core);
  }
  return text;
}

/// Returns, on all processes, the machine that has the most processes for a core, and its cores
/// that any of them may use.
CoreSharing most_crowded_machine(Processes& processes, std::chrono::milliseconds deadline) {
  struct Machine {
    std::int64_t processes = 0;
    std::set<int> cores;
  };
  std::map<std::string, Machine> machines;
  CoreSharing found;
  for (const std::string& line : processes.gather(boot_id() + "\n" + own_cores(), deadline)) {
    std::istringstream text(line);
    std::string id;
    std::getline(text, id);
    Machine& machine = machines[id];
    ++machine.processes;
    for (int core = 0; text >> core;) machine.cores.insert(core);
  }
  for (const auto& [id, machine] : machines) {
    const auto cores = std::int64_t(machine.cores.size());
    if (id.empty() || cores == 0) continue;
    if (machine.processes * found.cores > found.processes * cores) {
      found.processes = machine.processes;
      found.cores = cores;
    }
  }
  std::istringstream agreed(
      processes.broadcast(fmt::format("{} {}", found.processes, found.cores), deadline));
  agreed >> found.processes >> found.cores;
  return found;
}

/// Returns the time that repeated work took, relative to the sum of its ops' times.
double times_longer(const std::vector<RepeatedWork::Run>& runs) {
  std::vector<double> taken;
  for (const RepeatedWork::Run& run : runs) taken.push_back(run.taken.value());
  const Picoseconds begun = runs.back().begin - runs.front().begin;
  const double whole = begun.seconds().value() + runs.back().taken.value();
  return whole / (double(runs.size()) * quantile(taken, 0.5));
}

}  // namespace

CoreSharing measure_core_sharing(Processes& processes, RankBench& bench,
                                 const BenchCase& bench_case, Seconds horizon,
                                 std::chrono::milliseconds deadline) {
  CoreSharing sharing = most_crowded_machine(processes, deadline);
  if (sharing.processes <= sharing.cores) return sharing;
  processes.barrier(deadline);
  const double own = times_longer(bench.repeated(bench_case)->run(16, horizon));
  std::vector<double> all;
  for (const std::string& text : processes.gather(fmt::format("{}", own), deadline)) {
    double value = 1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    all.push_back(value);
  }
  if (all.empty()) return sharing;  // not process 0
  // A larger slowdown than their share has other causes.
  const double share = double(sharing.processes) / double(sharing.cores);
  sharing.times = std::clamp(quantile(all, 0.5), 1.0, share);
  return sharing;
}

void apply(const CoreSharing& sharing, Calibration& calibration) {
  if (sharing.times <= 1) return;
  const auto lengthen = [&](auto& points) {
    for (auto& point : points) {
      point.time.median = point.time.median * sharing.times;
      point.time.spread = point.time.spread * sharing.times;
    }
  };
  lengthen(calibration.ops);
  lengthen(calibration.matmuls);
  calibration.versions.push_back(
      fmt::format("{} processes share {} cores: ops and matmuls are given {:.2f} times the time of "
                  "one that is not interrupted",
                  sharing.processes, sharing.cores, sharing.times));
}

}  // namespace plimsoll
