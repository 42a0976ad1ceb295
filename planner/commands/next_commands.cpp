// Writes the commands that go on from a result.
#include "planner/commands/next_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "interop/exports/flags_script.h"
#include "models/presets/presets.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/api/question_command.h"
#include "reports/text_lines.h"

namespace plimsoll {
namespace {

std::string flag_text(const char* flag, const std::string& value) {
  return value.empty() ? "" : fmt::format(" {} {}", flag, shell_word(value));
}

/// Returns the flags that a command needs to find the plan's costs again.
std::string files_text(const Plan& plan, const TargetOptions& typed) {
  const auto is_plans = [&](const Preset& preset) {
    return digest(preset.text) == plan.cluster_digest;
  };
  std::string text;
  if (std::ranges::none_of(cluster_presets(), is_plans))
    text = flag_text("--cluster", named_cluster(typed).name);
  if (!plan.origin.calibration_name.empty()) return text;
  for (const std::string& file : typed.calibration) text += flag_text("--calibration", file);
  return text;
}

std::string ending_of(const FlagTable& table) {
  if (!table.document || table.options) return ".sh";
  switch (*table.document) {
    case DocumentSyntax::json:
      return ".json";
    case DocumentSyntax::yaml:
      return ".yaml";
    case DocumentSyntax::toml:
      return ".toml";
  }
  return "";
}

/// Returns a name for a file of the plan that is none of the files that were read.
std::string export_name(const std::string& file, const std::string& ending,
                        const TargetOptions& typed) {
  const std::string stem = std::filesystem::path(file).stem().string();
  for (const std::string& name : {stem + ending, stem + "-export" + ending}) {
    const auto is_read = [&](const std::string& read) {
      return !read.empty() && same_file(name, read);
    };
    if (!is_read(file) && !is_read(typed.job) && !is_read(typed.from) && !is_read(typed.cluster))
      return name;
  }
  return "";
}

/// Returns the command that writes the plan for its framework. It is empty if there are no flags
/// for the framework or for the job.
std::string export_command(const Plan& plan, const std::string& file, const TargetOptions& typed) {
  const auto found = plan_export(plan);
  if (!found) return "";
  const std::string output = export_name(file, ending_of(*found->table), typed);
  if (output.empty()) return "";
  const bool lossy = !found->flags.lost.empty();
  return fmt::format("planner export {} --to {}{} -o {}", shell_word(file),
                     found->table->target->name,
                     lossy ? " --allow-lossy" + files_text(plan, typed) : "", shell_word(output));
}

/// Puts commands into one line as long as they fit. A line works as a shell reads it.
std::vector<std::string> side_by_side(const std::vector<std::string>& commands) {
  constexpr std::size_t kWidth = kTerminalColumns - 9;
  std::vector<std::string> lines;
  for (const std::string& command : commands) {
    const std::string_view between = command.starts_with('#') ? "  " : "; ";
    if (!lines.empty() && lines.back().size() + between.size() + command.size() <= kWidth) {
      lines.back() += std::string(between) + command;
    } else {
      lines.push_back(command);
    }
  }
  return lines;
}

}  // namespace

std::vector<std::string> commands_after(const Plan& plan, const std::string& file,
                                        const PlanQuestion& asked) {
  if (file.empty()) {
    return side_by_side(
        {with_output(command_of(asked), "plan.json"),
         "# explain, report and export take plan.json; --verbose prints everything"});
  }
  std::vector<std::string> commands;
  if (std::string line = export_command(plan, file, asked.target); !line.empty())
    commands.push_back(std::move(line));
  const std::string page = std::filesystem::path(file).stem().string() + ".html";
  const std::string files = files_text(plan, asked.target);
  commands.push_back(fmt::format("planner explain {}{}", shell_word(file), files));
  commands.push_back(
      fmt::format("planner report {} -o {}{}", shell_word(file), shell_word(page), files));
  return with_verbose(std::move(commands));
}

std::vector<std::string> with_verbose(std::vector<std::string> commands) {
  commands.emplace_back("# --verbose prints everything");
  return side_by_side(commands);
}

std::string with_output(std::string command, const std::string& file) {
  return file.empty() ? command : fmt::format("{} -o {}", command, shell_word(file));
}

PlanQuestion with_change(PlanQuestion asked, const FittingChange& change) {
  if (change.devices) {
    asked.target.cluster = named_cluster(asked.target).name;  // "8xh100" states the devices
    asked.target.devices = *change.devices;
  }
  if (change.global_batch) asked.target.global_batch = change.global_batch;
  Constraints& constraints = asked.constraints;
  Fixed& fixed = constraints.fixed;
  if (!change.freed.empty()) {
    const Constraints before = constraints;
    free_key(constraints, change.freed);
    // The search would hold the value of the script again.
    if (constraints == before)
      fixed.emplace_back(change.freed, field_text(Strategy(), change.freed));
  }
  for (const auto& [key, value] : change.fix) free_key(constraints, key);
  fixed.insert(fixed.end(), change.fix.begin(), change.fix.end());
  return asked;
}

PlanQuestion search_of(const SimulationQuestion& asked) {
  PlanQuestion search;
  search.target = asked.target;
  search.training = asked.training;
  search.reserve = asked.reserve;
  return search;
}

}  // namespace plimsoll
