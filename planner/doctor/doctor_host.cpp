// Doctor: cores, memory, clocks, limits of the host, and what else runs on it.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/units.h"
#include "planner/doctor/doctor.h"
#include "planner/doctor/doctor_files.h"

namespace plimsoll {
namespace {

double number_in(std::string_view text) {
  double value = 0;
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return 0;
  std::from_chars(text.data() + first, text.data() + text.size(), value);
  return value;
}

/// Counts the entries of a list as "0-3,8", which has 5.
std::int64_t count_of(const std::string& list) {
  std::int64_t count = 0;
  for (const std::string& range : trimmed_parts(list, ',')) {
    if (range.empty()) continue;
    const std::size_t dash = range.find('-');
    const auto first = std::int64_t(number_in(range));
    const auto last = dash == range.npos ? first : std::int64_t(number_in(range.substr(dash + 1)));
    if (last >= first && last - first < 1 << 20) count += last - first + 1;
  }
  return count;
}

/// Returns the folder of this process' control group, for version 2 only.
std::filesystem::path control_group(const DoctorMachine& machine) {
  const auto groups = text_of(machine.root / "proc/self/cgroup");
  const auto own = groups ? line_after(*groups, "0::/") : std::nullopt;
  return machine.root / "sys/fs/cgroup" / own.value_or("");
}

Finding cores(const DoctorMachine& machine) {
  Finding finding{"cores", Health::ok, "", ""};
  const auto online = text_of(machine.root / "sys/devices/system/cpu/online");
  const auto status = text_of(machine.root / "proc/self/status");
  const auto allowed = status ? line_after(*status, "Cpus_allowed_list:") : std::nullopt;
  if (!online || !allowed) return {"cores", Health::warn, "not stated", "mount /proc and /sys"};
  const std::int64_t all = count_of(*online), own = count_of(*allowed);
  double quota = 0;
  if (const auto limit = text_of(control_group(machine) / "cpu.max");
      limit && !limit->starts_with("max")) {
    const std::size_t space = limit->find(' ');
    const double period = space == limit->npos ? 0 : number_in(limit->substr(space));
    if (period > 0) quota = number_in(*limit) / period;
  }
  finding.found = fmt::format("{} online, {} allowed to this process, {}", all, own,
                              quota > 0 ? fmt::format("a quota of {:.2f}", quota) : "no quota");
  if (quota > 0 && quota < double(own)) {
    finding.health = Health::warn;
    finding.fix = "raise the CPU quota of the container or job: ranks are stopped when it is spent";
  } else if (own < all) {
    finding.health = Health::warn;
    finding.fix =
        "fine for this job's share; else start without taskset, or with more cores of Slurm";
  }
  return finding;
}

Finding vectors(const DoctorMachine& machine) {
  const auto info = text_of(machine.root / "proc/cpuinfo");
  const auto flags = info ? line_after(*info, "flags") : std::nullopt;
  const auto has = [&](const char* flag) {
    return flags && (" " + *flags + " ").find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  const std::string found =
      fmt::format("AVX2 {}, AVX-512 {}, AVX-512 bf16 {}", has("avx2") ? "yes" : "no",
                  has("avx512f") ? "yes" : "no", has("avx512_bf16") ? "yes" : "no");
  if (has("avx2")) return {"vector units", Health::ok, found, ""};
  return {"vector units", Health::warn, found, "kernels of the CPU backend are slow without AVX2"};
}

Finding memory(const DoctorMachine& machine) {
  const auto info = text_of(machine.root / "proc/meminfo");
  if (!info) return {"memory", Health::warn, "not stated", "mount /proc"};
  const auto bytes = [&](const char* key) {
    return std::int64_t(number_in(line_after(*info, key).value_or("0"))) * 1024;
  };
  const std::int64_t total = bytes("MemTotal:"), free = bytes("MemAvailable:");
  const std::int64_t swapped = bytes("SwapTotal:") - bytes("SwapFree:");
  std::string found = fmt::format("{}, {} available", to_text(Bytes(total)), to_text(Bytes(free)));
  if (const auto limit = text_of(control_group(machine) / "memory.max");
      limit && !limit->starts_with("max")) {
    found += fmt::format(", at most {} for this control group",
                         to_text(Bytes(std::int64_t(number_in(*limit)))));
  }
  if (free < std::int64_t{1} << 30) {
    return {"memory", Health::warn, found,
            "end what holds the memory: runs would swap or be killed"};
  }
  if (swapped > total / 100) {
    found += fmt::format(", {} swapped out", to_text(Bytes(swapped)));
    return {"memory", Health::warn, found, "swapoff -a, or end what does not fit"};
  }
  return {"memory", Health::ok, found, ""};
}

Finding governor(const DoctorMachine& machine) {
  std::map<std::string, int> governors;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(machine.root / "sys/devices/system/cpu", error)) {
    if (const auto text = text_of(entry.path() / "cpufreq/scaling_governor")) ++governors[*text];
  }
  if (governors.empty()) return {"governor", Health::ok, "no frequency control here", ""};
  std::string found;
  for (const auto& [name, count] : governors) {
    found += fmt::format("{}{} on {} cores", found.empty() ? "" : ", ", name, count);
  }
  if (governors.size() == 1 && governors.contains("performance")) {
    return {"governor", Health::ok, found, ""};
  }
  return {"governor", Health::warn, found, "cpupower frequency-set -g performance"};
}

/// Returns the choice in brackets of "always [madvise] never".
Finding huge_pages(const DoctorMachine& machine) {
  const auto text = text_of(machine.root / "sys/kernel/mm/transparent_hugepage/enabled");
  const std::size_t open = text ? text->find('[') : std::string::npos;
  if (open == std::string::npos) return {"huge pages", Health::ok, "not stated", ""};
  const std::string choice = text->substr(open + 1, text->find(']') - open - 1);
  if (choice != "never") return {"huge pages", Health::ok, "transparent: " + choice, ""};
  return {"huge pages", Health::warn, "transparent: never",
          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding clock(const DoctorMachine& machine) {
  const auto source =
      text_of(machine.root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (!source) return {"clock", Health::ok, "not stated", ""};
  if (*source != "hpet" && *source != "acpi_pm" && *source != "jiffies") {
    return {"clock", Health::ok, *source, ""};
  }
  return {"clock", Health::warn, *source,
          "reading it takes about a microsecond: boot with clocksource=tsc if the machine allows"};
}

Finding other_load(const DoctorMachine& machine) {
  const auto load = text_of(machine.root / "proc/loadavg");
  const auto online = text_of(machine.root / "sys/devices/system/cpu/online");
  if (!load || !online) return {"other load", Health::ok, "not stated", ""};
  const double running = number_in(*load);
  const auto all = double(std::max<std::int64_t>(1, count_of(*online)));
  const std::string found = fmt::format("{:.2f} runnable on average over the last minute", running);
  if (running < 0.25 * all) return {"other load", Health::ok, found, ""};
  return {"other load", Health::warn, found,
          "end other processes, or wait for them, before measuring"};
}

/// Returns the time that the hypervisor gave to others, since boot.
Finding steal(const DoctorMachine& machine) {
  const auto stat = text_of(machine.root / "proc/stat");
  const auto line = stat ? line_after(*stat, "cpu ") : std::nullopt;
  if (!line) return {"stolen time", Health::ok, "not stated", ""};
  double sum = 0, stolen = 0;
  std::size_t i = 0;
  for (const std::string& field : trimmed_parts(*line, ' ')) {
    if (field.empty()) continue;
    if (i < 8) sum += number_in(field);  // user nice system idle iowait irq softirq steal
    if (i++ == 7) stolen = number_in(field);
  }
  const double percent = sum > 0 ? 100 * stolen / sum : 0;
  const std::string found = fmt::format("{:.1f} % since boot", percent);
  if (percent < 1) return {"stolen time", Health::ok, found, ""};
  return {"stolen time", Health::warn, found,
          "other virtual machines share these cores: measure on dedicated ones"};
}

Finding sharing(const DoctorMachine& machine) {
  const bool threads = text_of(machine.root / "sys/devices/system/cpu/smt/active") == "1";
  const bool balancing = text_of(machine.root / "proc/sys/kernel/numa_balancing") == "1";
  const std::string found = fmt::format("hyper-threads {}, NUMA balancing {}",
                                        threads ? "on" : "off", balancing ? "on" : "off");
  if (balancing) {
    return {"scheduling", Health::warn, found,
            "echo 0 > /proc/sys/kernel/numa_balancing: it moves pages while ranks run"};
  }
  return {
      "scheduling", threads ? Health::warn : Health::ok, found,
      threads ? "plan with one rank per physical core: two threads of a core share its units" : ""};
}

/// Returns a soft limit of /proc/self/limits; nothing if it is unlimited.
std::optional<double> soft_limit(const std::string& limits, const char* name) {
  const auto line = line_after(limits, name);
  if (!line || line->starts_with("unlimited")) return std::nullopt;
  return number_in(*line);
}

std::vector<Finding> limits(const DoctorMachine& machine) {
  const auto text = text_of(machine.root / "proc/self/limits");
  if (!text) return {{"limits", Health::warn, "not stated", "mount /proc"}};
  std::vector<Finding> findings;
  const auto locked = soft_limit(*text, "Max locked memory");
  const bool rdma = std::filesystem::exists(machine.root / "dev/infiniband");
  const std::string found =
      locked ? to_text(Bytes(std::int64_t(*locked))) : std::string("unlimited");
  if (rdma && locked) {
    findings.push_back({"locked memory", Health::fail, found,
                        "ulimit -l unlimited (limits.conf, or LimitMEMLOCK of slurmd): InfiniBand "
                        "registers its buffers"});
  } else {
    findings.push_back({"locked memory", Health::ok, found, ""});
  }
  const auto files = soft_limit(*text, "Max open files");
  const bool few = files && *files < 4096;
  findings.push_back({"open files", few ? Health::warn : Health::ok,
                      files ? fmt::format("{:.0f}", *files) : "unlimited",
                      few ? "ulimit -n 65536: many ranks on a node hold many sockets" : ""});
  return findings;
}

Finding shared_memory(const DoctorMachine& machine) {
  struct statvfs space {};
  const std::filesystem::path path = machine.root / "dev/shm";
  if (statvfs(path.c_str(), &space) != 0) {
    return {"/dev/shm", Health::fail, "missing",
            "mount -t tmpfs tmpfs /dev/shm: MPI and NCCL exchange through it"};
  }
  const auto size = std::int64_t(space.f_blocks * space.f_frsize);
  const std::string found = to_text(Bytes(size));
  if (size >= std::int64_t{1} << 30) return {"/dev/shm", Health::ok, found, ""};
  return {"/dev/shm", Health::warn, found,
          "at least 1 GiB (docker run --shm-size 8g): NCCL and MPI place buffers there"};
}

}  // namespace

std::vector<Finding> examine_host(const DoctorMachine& machine) {
  std::vector<Finding> findings = {cores(machine),      vectors(machine),    memory(machine),
                                   governor(machine),   huge_pages(machine), clock(machine),
                                   other_load(machine), steal(machine),      sharing(machine)};
  for (Finding& finding : limits(machine)) findings.push_back(std::move(finding));
  findings.push_back(shared_memory(machine));
  return findings;
}

}  // namespace plimsoll
