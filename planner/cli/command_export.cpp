// `planner export`: a plan as what other programs start from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/command_line.h"
#include "base/file.h"
#include "plan/plan.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/slurm_script.h"

namespace plimsoll {

namespace {

/// Returns the text as one word of a shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

/// Returns a text that is put into one line of a job script. Throws UsageError if it ends the line.
std::string in_one_line(const char* flag, const std::string& text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) < ' ')
      throw UsageError(fmt::format("{}: the path has a control character", flag));
  }
  return text;
}

/// Returns a name for a comment or a directive, which Slurm splits at blanks. All characters except
/// letters, digits, '.', '_' and '-' become '_'.
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

namespace {

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

}  // namespace

void add_export(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App& command = *app.add_subcommand("export", "a plan as a job script");
  command.add_option("PLAN", options->plan, "plan file")->required();
  command.add_option("--to", "slurm")->required()->check(CLI::IsMember({"slurm"}));
  command.add_option("--data", options->data, "file whose bytes are trained on")->required();
  command.add_option("--steps", options->steps, "training steps, the last one traced")
      ->capture_default_str()
      ->check(integers(4, 1'000'000));
  command.add_option("--measured", options->measured,
                     "file that the job writes; default: PLAN's name with .measured.json");
  command.add_option("--time", options->time, "limit, as sbatch takes it: \"30\", \"1:00:00\"")
      ->check([](const std::string& text) {
        const bool fits = !text.empty() && text.find_first_not_of("0123456789:-") == text.npos;
        return fits ? "" : "found \"" + text + "\"; minutes, h:m:s or days-hours are allowed";
      });
  command.add_option("-o,--output", options->output, "write the script here instead of to stdout");
  command.callback([options, &action] { action = [options] { return run_export(*options); }; });
}

}  // namespace plimsoll
