// Writes the commands that go on from a result.
#include "planner/commands/next_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "models/presets/presets.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/export/flags_script.h"
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
    text = flag_text("--cluster", typed.cluster);
  if (!plan.origin.calibration_name.empty()) return text;
  for (const std::string& file : typed.calibration) text += flag_text("--calibration", file);
  return text;
}

/// Returns the table whose flags state plans of a framework: its own, else the first one.
const FlagTable* export_table(const std::string& framework) {
  const auto is_exported = [](const FlagTable& table) {
    return table.target && table.target->exported && !table.target->by_version;
  };
  const FlagTable* own = flag_table_of(framework);
  if (own != nullptr && is_exported(*own)) return own;
  for (const FlagTable& table : flag_tables()) {
    const bool takes = std::ranges::find(table.frameworks, framework) != table.frameworks.end();
    if (takes && is_exported(table)) return &table;
  }
  return nullptr;
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

/// Returns the command that writes the plan for its framework. It is empty where there are no flags
/// for the framework or for the job.
std::string export_command(const Plan& plan, const std::string& file, const TargetOptions& typed) {
  const FlagTable* table = export_table(plan.framework.name);
  if (table == nullptr) return "";
  try {
    const bool lossy = !flags_of(plan, *table, file).lost.empty();
    const std::string output = std::filesystem::path(file).stem().string() + ending_of(*table);
    if (output == std::filesystem::path(file).filename() || output == typed.from) return "";
    return fmt::format("planner export {} --to {}{} -o {}", shell_word(file), table->target->name,
                       lossy ? " --allow-lossy" + files_text(plan, typed) : "", shell_word(output));
  } catch (const InputError&) {
    return "";  // the framework's own files have no such model
  }
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

std::string job_text_of(const TargetOptions& typed) {
  return typed.job.empty() ? "" : " " + shell_word(typed.job);
}

/// Returns the flags of job and machine.
std::string target_text(const TargetOptions& typed) {
  std::string text = flag_text("--from", typed.from) + flag_text("--cluster", typed.cluster);
  if (typed.devices > 0) text += fmt::format(" --devices {}", typed.devices);
  text += flag_text("--framework", typed.framework);
  if (typed.global_batch) text += fmt::format(" --global-batch {}", *typed.global_batch);
  if (typed.sequence) text += fmt::format(" --sequence {}", *typed.sequence);
  if (typed.vocab) text += fmt::format(" --vocab {}", *typed.vocab);
  if (typed.ignore_unknown) text += " --ignore-unknown";
  for (const std::string& file : typed.calibration) text += flag_text("--calibration", file);
  return text;
}

}  // namespace

std::vector<std::string> commands_after(const Plan& plan, const std::string& file,
                                        const TargetOptions& typed) {
  if (file.empty())
    return {"the same command with -o plan.json keeps the plan for explain, report and export",
            "--verbose and --top 10 print more"};
  std::vector<std::string> commands;
  if (std::string line = export_command(plan, file, typed); !line.empty())
    commands.push_back(std::move(line));
  const std::string page = std::filesystem::path(file).stem().string() + ".html";
  const std::string files = files_text(plan, typed);
  commands.push_back(fmt::format("planner explain {}{}", shell_word(file), files));
  commands.push_back(
      fmt::format("planner report {} -o {}{}", shell_word(file), shell_word(page), files));
  return with_verbose(std::move(commands));
}

std::vector<std::string> with_verbose(std::vector<std::string> commands) {
  commands.emplace_back("# --verbose prints everything");
  return side_by_side(commands);
}

std::string plan_command(const TargetOptions& typed, const HeldOptions& held) {
  std::string text = "planner plan" + job_text_of(typed) + target_text(typed);
  for (const auto& [flag, values] : kHeldFlags) {
    for (const std::string& value : held.*values) text += flag_text(flag, value);
  }
  return text;
}

std::string plan_command(TargetOptions typed, HeldOptions held, const FittingChange& change) {
  if (change.devices) {
    typed.cluster = named_cluster(typed).name;  // "8xh100" states the devices that are changed
    typed.devices = *change.devices;
  }
  if (change.global_batch) typed.global_batch = change.global_batch;
  for (const auto& [key, value] : change.fix) held.fix.push_back(fmt::format("{}={}", key, value));
  const auto is_freed = [&](const std::string& text) {
    return !change.freed.empty() && text.substr(0, text.find('=')) == change.freed;
  };
  for (const auto& [flag, values] : kHeldFlags) std::erase_if(held.*values, is_freed);
  return plan_command(typed, held);
}

std::string simulate_command(const TargetOptions& typed, const Strategy& strategy) {
  std::string choices;
  for (const StrategyField& field : differing_fields(strategy, Strategy()))
    choices += fmt::format("{}{}={}", choices.empty() ? "" : ",", field.key, field.value);
  return "planner simulate" + job_text_of(typed) + " " + shell_word(choices) + target_text(typed);
}

}  // namespace plimsoll
