// Doctor: GPUs as nvidia-smi describes them, the driver, and libraries.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"
#include "planner/doctor/doctor.h"
#include "planner/doctor/doctor_files.h"

namespace plimsoll {
namespace {

/// Fields of `nvidia-smi --query-gpu`, in the order asked for.
enum Field : std::size_t {
  kName,
  kDriver,
  kMemory,
  kUsed,
  kEcc,
  kEccErrors,
  kPersistence,
  kClock,
  kMostClock,
  kPower,
  kDefaultPower,
  kThrottle,
  kMig,
  kMode,
  kFields
};
constexpr std::array<const char*, kFields> kQuery = {"name",
                                                     "driver_version",
                                                     "memory.total",
                                                     "memory.used",
                                                     "ecc.mode.current",
                                                     "ecc.errors.uncorrected.volatile.total",
                                                     "persistence_mode",
                                                     "clocks.applications.graphics",
                                                     "clocks.max.graphics",
                                                     "power.limit",
                                                     "power.default_limit",
                                                     "clocks_throttle_reasons.active",
                                                     "mig.mode.current",
                                                     "compute_mode"};

/// The fields of one GPU as text; "[N/A]" where there is no value.
using Gpu = std::array<std::string, kFields>;

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// Asks nvidia-smi. A field that this version does not know is marked, and asked for as `name`,
/// since some fields were renamed over the years.
std::optional<DoctorMachine::Output> query(const DoctorMachine& machine,
                                           std::array<bool, kFields>& unknown) {
  auto fields = kQuery;
  std::optional<DoctorMachine::Output> output;
  for (std::size_t attempt = 0; attempt <= kFields; ++attempt) {
    output = machine.run({"nvidia-smi", fmt::format("--query-gpu={}", fmt::join(fields, ",")),
                          "--format=csv,noheader,nounits"});
    if (!output || output->code == 0) return output;
    bool retry = false;  // "Field "clocks_throttle_reasons.active" is not a valid field to query."
    for (std::size_t i = 1; i < kFields; ++i) {
      if (unknown[i] || output->text.find(fmt::format("\"{}\"", fields[i])) == std::string::npos) {
        continue;
      }
      const bool renamed = fields[i] == kQuery[kThrottle] && i == kThrottle;
      unknown[i] = !renamed;
      fields[i] = renamed ? "clocks_event_reasons.active" : kQuery[kName];
      retry = true;
    }
    if (!retry) return output;
  }
  return output;
}

/// Names GPUs: "GPU 0", "GPUs 0, 3", "all 8 GPUs".
std::string which(const std::vector<std::size_t>& some, std::size_t of) {
  if (some.size() == of && of > 1) return fmt::format("all {} GPUs", of);
  return fmt::format("{} {}", some.size() == 1 ? "GPU" : "GPUs", fmt::join(some, ", "));
}

/// Returns a finding on the GPUs for which `wrong` returns a text.
template <class Wrong>
Finding of_gpus(const char* check, const std::vector<Gpu>& gpus, const std::string& usual,
                Health health, const std::string& fix, Wrong wrong) {
  std::vector<std::size_t> some;
  std::string found;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const std::string what = wrong(gpus[i]);
    if (what.empty()) continue;
    if (found.empty()) found = what;
    some.push_back(i);
  }
  if (some.empty()) return {check, Health::ok, usual, ""};
  return {check, health, fmt::format("{}: {}", which(some, gpus.size()), found), fix};
}

/// Bits of clocks_throttle_reasons.active that slow a GPU down (NVML, nvmlClocksThrottleReasons).
std::string throttled(const Gpu& gpu) {
  std::uint64_t bits = 0;
  const std::string& text = gpu[kThrottle];
  if (!text.starts_with("0x")) return "";
  std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
  if (bits & 0x40) return "hot (hardware slowdown)";
  if (bits & 0x20) return "hot (software slowdown)";
  if (bits & 0x80) return "slowed by the power supply";
  if (bits & 0x08) return "slowed by the hardware";
  return bits & 0x04 ? "at its power limit" : "";
}

std::string capped(const Gpu& gpu) {
  const auto limit = number(gpu[kPower]), usual = number(gpu[kDefaultPower]);
  if (!limit || !usual || *limit >= *usual - 1) return "";
  return fmt::format("limit of {:.0f} W, and {:.0f} W are usual", *limit, *usual);
}

std::string slowed(const Gpu& gpu) {
  const auto clock = number(gpu[kClock]), most = number(gpu[kMostClock]);
  if (!clock || !most || *clock >= 0.7 * *most) return "";
  return fmt::format("application clock {:.0f} MHz of {:.0f}", *clock, *most);
}

std::vector<Finding> conditions(const std::vector<Gpu>& gpus) {
  const auto is = [](Field field, const char* text, const char* says) {
    return [=](const Gpu& gpu) { return gpu[field] == text ? std::string(says) : std::string(); };
  };
  return {
      of_gpus("GPU memory", gpus, "free", Health::warn,
              "end the other processes (nvidia-smi names them)",
              [](const Gpu& gpu) -> std::string {
                const auto used = number(gpu[kUsed]);
                // The driver itself holds some hundred MiB.
                return used && *used > 1024 ? fmt::format("{:.0f} MiB in use", *used) : "";
              }),
      of_gpus("GPU clocks", gpus, "not limited", Health::warn, "nvidia-smi -rac; nvidia-smi -rgc",
              slowed),
      of_gpus("GPU power", gpus, "usual limit", Health::warn,
              "nvidia-smi -pl WATTS, or measure as it will run", capped),
      of_gpus("GPU throttling", gpus, "none now", Health::warn,
              "cool the machine, or measure as it will run", throttled),
      of_gpus(
          "GPU ECC", gpus, gpus.front()[kEcc] == "Enabled" ? "on, no uncorrected errors" : "not on",
          Health::fail, "reset or replace it: nvidia-smi -q -d ECC",
          [](const Gpu& gpu) -> std::string {
            const auto errors = number(gpu[kEccErrors]);
            return errors && *errors > 0 ? fmt::format("{:.0f} uncorrected errors", *errors) : "";
          }),
      of_gpus("GPU persistence", gpus, "on", Health::warn,
              "nvidia-smi -pm 1: without it each start initialises the device",
              is(kPersistence, "Disabled", "off")),
      of_gpus("GPU partitions", gpus, "whole", Health::warn,
              "measurements are of a partition: nvidia-smi -mig 0 for whole devices",
              is(kMig, "Enabled", "MIG is on")),
      of_gpus("GPU compute mode", gpus, "open", Health::fail, "nvidia-smi -c 0",
              is(kMode, "Prohibited", "prohibited")),
  };
}

std::string cuda_version(std::int64_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::vector<Finding> driver(const DoctorMachine& machine, std::size_t listed) {
  const DriverProbe probe = machine.driver();
  const std::string fix =
      "install the driver's libcuda, or mount it into the container "
      "(nvidia-container-toolkit)";
  if (!probe.present) return {{"CUDA driver", Health::fail, "no libcuda.so.1", fix}};
  if (!probe.error.empty()) {
    return {{"CUDA driver", Health::fail, probe.error, "see dmesg and nvidia-smi; " + fix}};
  }
  std::vector<Finding> findings = {
      {"CUDA driver", Health::ok,
       fmt::format("supports CUDA {}, {} devices", cuda_version(probe.version), probe.devices),
       ""}};
  if (probe.devices < std::int64_t(listed)) {
    findings[0].health = Health::warn;
    findings[0].fix = "CUDA_VISIBLE_DEVICES or the job hides the others";
  }
  if (probe.devices > 1) {
    const bool all = probe.unreachable_pairs == 0;
    findings.push_back(
        {"peer access", all ? Health::ok : Health::warn,
         all ? std::string("between all pairs")
             : fmt::format("{} pairs of devices without", probe.unreachable_pairs),
         all ? "" : "ACS or the IOMMU may forbid it: NCCL then goes through the host"});
  }
  return findings;
}

std::vector<Finding> libraries(const DoctorMachine& machine, std::int64_t driver_version) {
  std::vector<Finding> findings;
  for (const LibraryProbe& library : machine.libraries()) {
    if (library.file.empty()) {
      findings.push_back({library.name, Health::warn, "not found",
                          "install it, or add its folder to LD_LIBRARY_PATH"});
      continue;
    }
    std::string found = library.file;
    if (library.version) found += fmt::format(", version {}", *library.version);
    const bool newer = library.name == "CUDA runtime" && library.version && driver_version > 0 &&
                       *library.version / 1000 > driver_version / 1000;
    findings.push_back({library.name, newer ? Health::fail : Health::ok, found,
                        newer
                            ? fmt::format("the driver supports CUDA {}: update it, or use an older "
                                          "toolkit",
                                          cuda_version(driver_version))
                            : ""});
  }
  return findings;
}

}  // namespace

std::vector<Finding> examine_gpus(const DoctorMachine& machine) {
  std::array<bool, kFields> unknown{};
  const auto output = query(machine, unknown);
  const bool device = std::filesystem::exists(machine.root / "dev/nvidia0");
  if (!output && !device) {
    return {{"GPUs", Health::ok, "none: this machine runs and measures on CPU cores", ""}};
  }
  if (!output || output->code != 0) {
    return {{"GPUs", device ? Health::fail : Health::warn,
             !output ? "a device, but no nvidia-smi"
                     : "nvidia-smi fails: " + printable(trimmed_parts(output->text, '\n')[0], 100),
             "install or repair the driver"}};
  }
  std::vector<Gpu> gpus;
  for (const std::string& line : trimmed_parts(output->text, '\n')) {
    const std::vector<std::string> fields = trimmed_parts(line, ',');
    if (fields.size() != kFields) continue;
    Gpu gpu;
    for (std::size_t i = 0; i < kFields; ++i) gpu[i] = unknown[i] ? "" : printable(fields[i]);
    gpus.push_back(std::move(gpu));
  }
  if (gpus.empty()) {
    return {
        {"GPUs", Health::fail, "nvidia-smi lists none", "see dmesg; install or repair the driver"}};
  }
  std::vector<Finding> findings = {{"GPUs", Health::ok,
                                    fmt::format("{} x {}, {} MiB, driver {}", gpus.size(),
                                                gpus[0][kName], gpus[0][kMemory], gpus[0][kDriver]),
                                    ""}};
  const auto differs = [&](const Gpu& gpu) { return gpu[kName] != gpus[0][kName]; };
  if (std::any_of(gpus.begin(), gpus.end(), differs)) {
    findings[0].health = Health::warn;
    findings[0].found += "; others differ";
    findings[0].fix = "a calibration is of one kind of device: CUDA_VISIBLE_DEVICES";
  }
  for (Finding& finding : conditions(gpus)) findings.push_back(std::move(finding));
  if (!machine.driver) {
    findings.push_back({"CUDA driver", Health::warn, "not asked: this planner is linked statically",
                        "planner doctor of the Debian package asks driver and libraries"});
    return findings;
  }
  for (Finding& finding : driver(machine, gpus.size())) findings.push_back(std::move(finding));
  for (Finding& finding : libraries(machine, machine.driver().version)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace plimsoll
