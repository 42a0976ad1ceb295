// Doctor: finds whether this machine can measure and train, and what would spoil a measurement.
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

/// The result of one check.
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

/// The places where the doctor looks. Tests replace all of them.
struct DoctorMachine {
  std::filesystem::path root = "/";                ///< of /proc, /sys and /dev
  std::filesystem::path programs;                  ///< folder of planner-run and the others
  std::filesystem::path output;                    ///< folder that results go to
  std::map<std::string, std::string> environment;  ///< variables that matter and are set
  bool is_superuser = false;
  /// The standard output of a program and its exit code.
  struct Output {
    int code = 0;
    std::string text;
  };
  /// Runs a program of PATH, for at most 10 seconds. Returns nothing where PATH lacks it.
  std::function<std::optional<Output>(const std::vector<std::string>& command)> run;
  /// Both are empty where the program is linked statically: it cannot load libraries of the
  /// machine.
  std::function<DriverProbe()> driver;
  std::function<std::vector<LibraryProbe>()> libraries;
};

/// Returns the machine that this process runs on.
DoctorMachine this_machine();

/// Checks cores, memory, clocks, limits and what else runs.
std::vector<Finding> examine_host(const DoctorMachine& machine);
/// Checks GPUs, driver and libraries, and says so where there is no GPU.
std::vector<Finding> examine_gpus(const DoctorMachine& machine);
/// Checks the programs beside planner, MPI, Slurm, and whether results can be written.
std::vector<Finding> examine_programs(const DoctorMachine& machine);
/// Runs all checks, in that order.
std::vector<Finding> examine(const DoctorMachine& machine);

std::string findings_text(const std::vector<Finding>& findings);
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace plimsoll
