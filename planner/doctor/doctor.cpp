// Doctor: programs, MPI, Slurm, and how findings are shown.
#include "planner/doctor/doctor.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "planner/doctor/doctor_files.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 3> kHealth = {"ok", "warn", "fail"};

Finding programs(const DoctorMachine& machine) {
  std::string missing;
  for (const char* name : {"planner-run", "planner-calibrate"}) {
    if (std::filesystem::exists(machine.programs / name)) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  }
  if (missing.empty()) return {"programs", Health::ok, "planner-run and planner-calibrate", ""};
  return {"programs", Health::fail, "missing next to planner: " + missing,
          "install all of Plimsoll"};
}

std::vector<Finding> mpi(const DoctorMachine& machine) {
  const bool built = std::filesystem::exists(machine.programs / "planner-run-mpi");
  const auto version = machine.run({"mpirun", "--version"});
  if (!version) {
    return {{"MPI", built ? Health::warn : Health::ok, "no mpirun in PATH",
             built ? "module load openmpi, or add it to PATH; srun starts ranks, too" : ""}};
  }
  const std::string found = printable(trimmed_parts(version->text, '\n')[0], 80);
  std::vector<Finding> findings;
  if (built) {
    findings.push_back({"MPI", Health::ok, found, ""});
  } else {
    findings.push_back({"MPI", Health::warn, found + "; planner-run-mpi is not built",
                        "build with the MPI development files (libopenmpi-dev)"});
  }
  const bool open_mpi = found.find("Open MPI") != found.npos;
  if (open_mpi && machine.is_superuser &&
      !(machine.environment.contains("OMPI_ALLOW_RUN_AS_ROOT") &&
        machine.environment.contains("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"))) {
    findings.push_back({"MPI as root", Health::warn, "Open MPI refuses to start as root",
                        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  }
  const auto binding = machine.environment.find("OMPI_MCA_hwloc_base_binding_policy");
  const bool unbound = binding != machine.environment.end() && binding->second == "none";
  findings.push_back({"MPI binding", unbound ? Health::warn : Health::ok,
                      binding == machine.environment.end() ? "as mpirun does by itself"
                                                           : printable(binding->second),
                      unbound ? "mpirun --bind-to core: ranks that move measure each other" : ""});
  return findings;
}

Finding slurm(const DoctorMachine& machine) {
  const auto version = machine.run({"srun", "--version"});
  if (!version) return {"Slurm", Health::ok, "none here", ""};
  if (version->code != 0) return {"Slurm", Health::ok, "installed, but not set up here", ""};
  const auto job = machine.environment.find("SLURM_JOB_ID");
  return {"Slurm", Health::ok,
          printable(trimmed_parts(version->text, '\n')[0]) +
              (job == machine.environment.end() ? std::string(", outside of a job")
                                                : ", in job " + printable(job->second)),
          ""};
}

Finding threads(const DoctorMachine& machine) {
  const auto found = machine.environment.find("OMP_NUM_THREADS");
  if (found == machine.environment.end()) {
    return {"OMP_NUM_THREADS", Health::ok, "not set: ranks take one thread each", ""};
  }
  return {"OMP_NUM_THREADS", Health::ok, printable(found->second), ""};
}

Finding output(const DoctorMachine& machine) {
  const std::string folder = machine.output.string();
  try {
    check_writable(machine.output / "plimsoll-doctor.json");
  } catch (const EnvironmentError& error) {
    return {"output", Health::fail, error.what(), "change to a folder that can be written"};
  }
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) != 0) return {"output", Health::ok, folder, ""};
  const Bytes free(std::int64_t(space.f_bavail * space.f_frsize));
  const std::string found =
      fmt::format("{} can be written, {} free", printable(folder, 200), to_text(free));
  const bool little = free < Bytes(std::int64_t{256} << 20);
  return {"output", little ? Health::warn : Health::ok, found, little ? "make room" : ""};
}

}  // namespace

std::vector<Finding> examine_programs(const DoctorMachine& machine) {
  std::vector<Finding> findings = {programs(machine)};
  for (Finding& finding : mpi(machine)) findings.push_back(std::move(finding));
  findings.push_back(slurm(machine));
  findings.push_back(threads(machine));
  findings.push_back(output(machine));
  return findings;
}

std::vector<Finding> examine(const DoctorMachine& machine) {
  std::vector<Finding> findings = examine_host(machine);
  for (Finding& finding : examine_gpus(machine)) findings.push_back(std::move(finding));
  for (Finding& finding : examine_programs(machine)) findings.push_back(std::move(finding));
  return findings;
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<5} {:<17} {}\n", kHealth[std::size_t(finding.health)], finding.check,
                        finding.found);
    if (!finding.fix.empty()) text += fmt::format("{:24}fix: {}\n", "", finding.fix);
  }
  return text;
}

std::string findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  Health worst = Health::ok;
  for (const Finding& finding : findings) {
    worst = std::max(worst, finding.health);
    list.push_back({{"check", finding.check},
                    {"health", kHealth[std::size_t(finding.health)]},
                    {"found", finding.found},
                    {"fix", finding.fix.empty() ? Json(nullptr) : Json(finding.fix)}});
  }
  return json_text({{"worst", kHealth[std::size_t(worst)]}, {"findings", list}});
}

}  // namespace plimsoll
