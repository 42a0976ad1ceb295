// Doctor: whether this machine can measure and train, and what would spoil a measurement.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

enum class Health : std::uint8_t {
  ok,
  warn,  ///< works, but slower or less exactly
  fail,  ///< does not work
};

struct Finding {
  std::string check;  ///< "cores", "driver", ...
  Health health = Health::ok;
  std::string found;
  std::string fix;  ///< what to do; empty where ok
};

/// The CUDA driver's report of its devices. It is asked in a process of its own: a broken driver
/// can hang or crash the one that asks.
struct DriverProbe {
  bool present = false;      ///< libcuda.so.1 is there
  std::string error;         ///< of its initialisation; empty: none
  std::int64_t version = 0;  ///< newest CUDA it supports: 13000
  std::int64_t devices = 0;
  std::int64_t unreachable_pairs = 0;  ///< ordered pairs of devices without peer access
};

/// A library, found by the dynamic linker and asked for its version.
struct LibraryProbe {
  std::string name;                     ///< "NCCL"
  std::string file;                     ///< that was found; empty: none
  std::optional<std::int64_t> version;  ///< as it states it: 22809
};

/// Where the doctor looks; tests stand in for all of it.
struct DoctorMachine {
  std::filesystem::path root = "/";                ///< of /proc, /sys and /dev
  std::filesystem::path programs;                  ///< folder of planner-run and the others
  std::filesystem::path output;                    ///< folder that results go to
  std::map<std::string, std::string> environment;  ///< those variables that matter, where set
  bool is_superuser = false;
  /// Standard output of a program of PATH and its exit code; nothing where PATH lacks it. Ends
  /// after 10 seconds.
  struct Output {
    int code = 0;
    std::string text;
  };
  std::function<std::optional<Output>(const std::vector<std::string>& command)> run;
  std::function<DriverProbe()> driver;
  std::function<std::vector<LibraryProbe>()> libraries;
};

/// The machine that this process runs on.
DoctorMachine this_machine();

/// Cores, memory, clocks, limits and what else runs.
std::vector<Finding> examine_host(const DoctorMachine& machine);
/// GPUs, driver and libraries; says so where there is no GPU.
std::vector<Finding> examine_gpus(const DoctorMachine& machine);
/// The programs beside planner, MPI, Slurm, and whether results can be written.
std::vector<Finding> examine_programs(const DoctorMachine& machine);
/// All of it, in that order.
std::vector<Finding> examine(const DoctorMachine& machine);

std::string findings_text(const std::vector<Finding>& findings);
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace plimsoll
