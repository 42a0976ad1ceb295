// `planner export`: a plan as what other programs start from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "base/command_line.h"
#include "base/file.h"
#include "base/json.h"
#include "interop/exports/flags_script.h"
#include "models/presets/presets.h"
#include "plan/filling.h"
#include "plan/plan.h"
#include "planner/api/target.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/commands/slurm_script.h"
#include "predict/calibration_choice.h"
#include "predict/cost_basis.h"
#include "predict/evaluate.h"
#include "predict/trials.h"

namespace plimsoll {

namespace {

/// Returns a path that is put into one line of a job script. Throws UsageError if it ends the line,
/// or if another path would be shown.
std::string in_one_line(const char* flag, const std::string& text) {
  if (text.find_first_of("\n\t") != text.npos || without_controls(text) != text)
    throw UsageError(fmt::format("{}: the path has a control character", flag));
  return text;
}

constexpr const char* kSlurm = "slurm";

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
      shell_word(in_one_line("planner-run-mpi", program)),
      shell_word(in_one_line("PLAN", options.plan)),
      shell_word(in_one_line("--data", options.data)), options.steps,
      plan.framework == bundled_cuda_framework() ? " --backend cuda" : "",
      shell_word(in_one_line("--measured", measured)));
  return script;
}

namespace {

/// Writes to a file; an empty name is stdout.
void write_script(const std::string& output, const std::string& script) {
  if (output.empty()) {
    print_result(script);
  } else {
    write_file_atomically(output, script);
    print_note(fmt::format("wrote {}\n", output));
  }
}

ExitCode export_slurm(const ExportOptions& options) {
  if (options.data.empty()) throw UsageError("--data is required");
  const Plan plan = read_legal_plan(options.plan);
  if (!runs_here(plan.framework)) {
    throw InputError(options.plan, "/framework/name",
                     fmt::format("found \"{}\"; only plans for the bundled runtime can run",
                                 plan.framework.name));
  }
  write_script(options.output, slurm_script(plan, options, beside("planner-run-mpi")));
  return ExitCode::ok;
}

/// Returns the cluster file of a plan: the one that is named, else the preset of its digest.
std::string cluster_of(const Plan& plan, const ExportOptions& options) {
  if (!options.cluster.empty()) return cluster_file(options.cluster, plan.devices);
  for (const Preset& preset : cluster_presets()) {
    if (digest(preset.text) == plan.cluster_digest) return std::string(preset.name);
  }
  throw UsageError(
      fmt::format("--cluster is required: the flags cannot state all of the plan, and what the "
                  "rest costs is predicted on {}, which is not built in",
                  plan.cluster_name));
}

std::string cost_text(const Target& target, const Strategy& strategy) {
  if (const Verdict verdict = legal(target, strategy); !verdict)
    return "not legal: " + verdict.reason();
  const Evaluation evaluation = evaluate(target, strategy);
  const Filling filling = filling_of(tightest_of(evaluation.prediction.stages),
                                     outside_program(target, strategy), target.reserve);
  return fmt::format("step {}, {} ({} bytes) per device{}",
                     to_text(evaluation.prediction.step_time), to_text(filling.taken()),
                     filling.taken().count(), filling.fits() ? "" : ", which does not fit");
}

/// Says what the flags cannot state, and what the plan and the flags cost.
void describe_losses(const Plan& plan, const PlanFlags& flags, const ExportOptions& options) {
  for (const LostChoice& lost : flags.lost) {
    print_note(fmt::format("{}: not expressed: {} is {}; the flags give {}\n", options.plan,
                           lost.key, lost.planned, lost.nearest));
  }
  const std::string file = cluster_of(plan, options);
  std::vector<std::string> calibration = options.calibration;
  if (calibration.empty() && !plan.origin.calibration_name.empty())
    calibration = {plan.origin.calibration_name};
  const auto target = [&](const Job& job, const Framework& framework) {
    CostBasis basis =
        cost_basis(read_cluster(file), framework, read_calibration_choice(calibration), file);
    return Target(job,
                  CostModel(std::move(basis.cluster), std::move(basis.measured),
                            std::move(basis.framework), std::move(basis.fitted)),
                  plan.devices, plan.reserve);
  };
  print_note(
      fmt::format("planned:  {}\n", cost_text(target(plan.job, plan.framework), plan.strategy)));
  print_note(
      fmt::format("exported: {}\n", cost_text(target(flags.job, flags.framework), flags.strategy)));
}

/// Returns the table for the plan's framework. Throws InputError for a plan of another framework.
const FlagTable& table_of(const Plan& plan, const ExportOptions& options) {
  const FlagTable* known = flag_table_for(options.to, options.target_version);
  if (known == nullptr) {
    throw UsageError(fmt::format("--target-version: found {}; flags of {} are known in version {}",
                                 printable(options.target_version), options.to,
                                 fmt::join(versions_for(options.to), ", ")));
  }
  const FlagTable& table = *known;
  if (std::ranges::find(table.frameworks, plan.framework.name) != table.frameworks.end())
    return table;
  throw InputError(options.plan, "/framework/name",
                   fmt::format("found \"{}\"; {} takes plans for {}: plan with --framework {}",
                               plan.framework.name, options.to, fmt::join(table.frameworks, ", "),
                               table.frameworks[0]));
}

/// Returns the script or the file of a plan. Prints what it does not state, and returns nothing if
/// that was not allowed.
std::optional<std::string> exported(const Plan& plan, const ExportOptions& options) {
  const FlagTable& table = table_of(plan, options);
  PlanFlags flags = flags_of(plan, table, options.plan);
  if (options.trial) flags.trial = trial_settings(*table.target, kTrialSteps);
  if (!flags.lost.empty()) {
    describe_losses(plan, flags, options);
    if (!options.allow_lossy) {
      print_note("planner: nothing is written: --allow-lossy writes what the flags give\n");
      return std::nullopt;
    }
  }
  if (!table.document || table.options) return flags_script(plan, table, flags);
  if (*table.document == DocumentSyntax::json) {  // it has no comments
    for (const std::string& line : document_comments(plan, table, flags)) print_note(line + "\n");
  }
  return flags_document(plan, table, flags);
}

ExitCode export_flags(const ExportOptions& options) {
  const auto text = exported(read_legal_plan(options.plan), options);
  if (!text) return ExitCode::infeasible;
  write_script(options.output, *text);
  return ExitCode::ok;
}

/// Returns the name of a trial's file: "trial-1.sh" of "trial.sh".
std::string trial_file(const std::string& output, std::size_t number) {
  const std::filesystem::path path(output);
  return (path.parent_path() /
          fmt::format("{}-{}{}", path.stem().string(), number, path.extension().string()))
      .string();
}

/// Writes the plan and its trials, each for some steps, and prints how to learn from them.
ExitCode export_trials(const ExportOptions& options) {
  if (options.output.empty()) throw UsageError("--trial requires -o, for a file of each trial");
  const Plan plan = read_legal_plan(options.plan);
  if (plan.trials.empty())
    throw InfeasibleError(options.plan + ": no trial is expected to gain more than its steps take");
  std::vector<std::pair<std::string, std::string>> files;  // names and texts
  std::string runs;
  for (std::size_t i = 0; i < plan.trials.size(); ++i) {
    const std::string file = trial_file(options.output, i + 1);
    check_output("-o", file, std::array{options.plan});
    Plan trial = plan;
    trial.strategy = plan.trials[i].strategy;
    const auto text = exported(trial, options);
    if (!text) return ExitCode::infeasible;
    files.emplace_back(file, *text);
    runs += fmt::format(" --from {} --log {}", shell_word(file),
                        shell_word(std::filesystem::path(file).replace_extension(".log").string()));
  }
  for (const auto& [file, text] : files) write_script(file, text);
  const bool printed = !table_of(plan, options).target->trial.empty();
  print_note(
      fmt::format("run each for {} steps{}, then: planner learn{} --cluster {} -o "
                  ".plimsoll/mine.json\n",
                  kTrialSteps, printed ? "" : ", logging every step", runs,
                  shell_word(options.cluster.empty() ? plan.cluster_name : options.cluster)));
  return ExitCode::ok;
}

ExitCode run_export(const ExportOptions& options) {
  check_output("-o", options.output, std::array{options.plan, options.data});
  if (options.to == kSlurm && options.trial)
    throw UsageError("--trial is not for slurm: trials are of other frameworks");
  if (options.to == kSlurm) return export_slurm(options);
  return options.trial ? export_trials(options) : export_flags(options);
}

std::vector<std::string> export_targets() {
  std::vector<std::string> targets = {kSlurm};
  for (const FlagTable& table : flag_tables()) {
    if (table.target && table.target->exported && !table.target->by_version)
      targets.push_back(table.target->name);
  }
  return targets;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App& command = *app.add_subcommand(
      "export", "a plan as a script that starts it, or as a framework's configuration file");
  command.add_option("PLAN", options->plan, "plan file")->required();
  command.add_option("--to", options->to, "what starts it")
      ->required()
      ->check(CLI::IsMember(export_targets()));
  command.add_option("--data", options->data, "slurm: file whose bytes are trained on");
  command.add_option("--steps", options->steps, "slurm: training steps, the last one traced")
      ->capture_default_str()
      ->check(integers(4, 1'000'000));
  command.add_option("--measured", options->measured,
                     "slurm: file that the job writes; default: PLAN's name with .measured.json");
  command
      .add_option("--time", options->time, "slurm: limit, as sbatch takes it: \"30\", \"1:00:00\"")
      ->check([](const std::string& text) {
        const bool fits = !text.empty() && text.find_first_not_of("0123456789:-") == text.npos;
        return fits ? "" : "found \"" + text + "\"; minutes, h:m:s or days-hours are allowed";
      });
  command.add_flag("--allow-lossy", options->allow_lossy,
                   "write the nearest flags if they cannot state all of the plan");
  command.add_flag("--trial", options->trial,
                   "write each plan that is worth a trial: -o NAME gives NAME-1, NAME-2 and so on");
  command.add_option("--target-version", options->target_version,
                     "of the framework that takes the flags; default: that of the target's file");
  command.add_option("--cluster", options->cluster,
                     "if the plan's is not built in: predicts what flags cannot state");
  add_calibration(command, options->calibration);
  command.add_option("-o,--output", options->output, "write it here instead of to stdout");
  command.callback([options, &action] { action = [options] { return run_export(*options); }; });
}

}  // namespace plimsoll
