// `planner export`: a plan as what other programs start from.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "base/command_line.h"
#include "base/file.h"
#include "plan/plan.h"
#include "planner/cli/commands.h"

namespace plimsoll {

namespace {

/// As one word of a shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

/// One line of a job script: nothing in it may end the line.
std::string in_one_line(const char* flag, const std::string& text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) < ' ')
      throw UsageError(fmt::format("{}: the path has a control character", flag));
  }
  return text;
}

/// A name as part of a directive, which Slurm splits at blanks, or of a comment: anything else than
/// letters, digits, '.', '_' and '-' becomes '_'.
std::string as_one_word(const std::string& name) {
  std::string word;
  for (const char c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '.' || c == '_' || c == '-';
    word += plain ? c : '_';
  }
  return word;
}

std::string beside(const char* program) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw EnvironmentError("cannot find the running executable: " + error.message());
  return (self.parent_path() / program).string();
}

}  // namespace

std::string slurm_script(const Plan& plan, const ExportOptions& options,
                         const std::string& program) {
  const std::int64_t per_node = std::min(plan.devices, plan.devices_per_node);
  const std::int64_t nodes = (plan.devices + per_node - 1) / per_node;
  const std::string measured =
      options.measured.empty()
          ? std::filesystem::path(options.plan).stem().string() + ".measured.json"
          : options.measured;
  std::string script = "#!/bin/bash\n";
  const std::string name = as_one_word(plan.job.name);
  script += fmt::format("# {}: {}\n", name, strategy_summary(plan.strategy));
  script += fmt::format("#SBATCH --job-name={}\n", name);
  script += fmt::format("#SBATCH --nodes={}\n", plan.oversubscribed ? 1 : nodes);
  script += fmt::format("#SBATCH --ntasks={}\n", plan.devices);
  if (plan.oversubscribed) {
    script += "#SBATCH --overcommit\n";  // more ranks than cores, as planned
  } else {
    script += fmt::format("#SBATCH --ntasks-per-node={}\n", per_node);
  }
  script += "#SBATCH --cpus-per-task=1\n";
  if (!options.time.empty()) script += fmt::format("#SBATCH --time={}\n", options.time);
  script += "set -euo pipefail\n";
  script += "export OMP_NUM_THREADS=1\n";
  // Ranks fill nodes in order: what the plan's groups of ranks count on.
  script += fmt::format(
      "exec srun --distribution=block --kill-on-bad-exit=1 {} {} --data {} --steps {}{} -o {}\n",
      quoted(in_one_line("planner-run-mpi", program)), quoted(in_one_line("PLAN", options.plan)),
      quoted(in_one_line("--data", options.data)), options.steps,
      plan.framework == bundled_cuda_framework() ? " --backend cuda" : "",
      quoted(in_one_line("--measured", measured)));
  return script;
}

ExitCode run_export(const ExportOptions& options) {
  check_output("-o", options.output, std::array{options.plan, options.data});
  const Plan plan = read_legal_plan(options.plan);
  if (!runs_here(plan.framework)) {
    throw InputError(options.plan, "/framework/name",
                     fmt::format("found \"{}\"; only plans for the bundled runtime can run",
                                 plan.framework.name));
  }
  const std::string script = slurm_script(plan, options, beside("planner-run-mpi"));
  if (options.output.empty()) {
    print_result(script);
  } else {
    write_file_atomically(options.output, script);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  return ExitCode::ok;
}

}  // namespace plimsoll
