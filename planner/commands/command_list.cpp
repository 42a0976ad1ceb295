// `planner list`: the names of built-in jobs, clusters, frameworks and calibrations, with the facts
// by which one is chosen.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/json.h"
#include "interop/flags/flag_table.h"
#include "models/framework/framework.h"
#include "models/presets/preset_names.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/describe/describe_input.h"
#include "reports/numbers.h"
#include "reports/text_lines.h"

namespace plimsoll {
namespace {

struct ListedPreset {
  std::string name;
  std::vector<Fact> facts;               ///< presets of a kind have facts with the same labels
  std::vector<std::string> other_names;  ///< what else users may call it
};

std::vector<Fact> facts_of_job(const Preset& preset) {
  const Job job = parse_job(preset.text, std::string(preset.name));
  const std::int64_t parameters = parameter_count(build_forward(job, 1));
  return {{"parameters", fmt::format("{:.3g} B", double(parameters) / 1e9), parameters},
          {"layers", grouped(job.layers), job.layers},
          {"hidden", grouped(job.hidden), job.hidden},
          {"sequence", grouped(job.sequence), job.sequence},
          {"batch", grouped(job.global_batch), job.global_batch}};
}

std::vector<Fact> facts_of_cluster(const Preset& preset) {
  const Cluster cluster = parse_cluster(preset.text, std::string(preset.name));
  const std::optional<FlopsPerSecond> rate =
      cluster.device.peak_bf16 ? cluster.device.peak_bf16 : cluster.device.peak_fp16;
  Fact network{"network", "one node", nullptr, "bytes_per_s"};
  if (!cluster.nodes || *cluster.nodes > 1) {
    network.text = to_text(cluster.levels.back().bandwidth);
    network.value = cluster.levels.back().bandwidth.value();
  }
  return {{"per node", grouped(cluster.devices_per_node), cluster.devices_per_node},
          {"memory", to_text(cluster.device.memory), cluster.device.memory.count(), "bytes"},
          {"peak", rate ? to_text(*rate) : "-", rate ? Json(rate->value()) : Json(nullptr),
           "flops_per_s"},
          network};
}

std::vector<Fact> facts_of_framework(const Preset& preset) {
  const Framework& framework = framework_by_name(preset.name);
  std::vector<std::string> targets;
  for (const FlagTable& table : flag_tables()) {
    const bool takes =
        std::ranges::find(table.frameworks, framework.name) != table.frameworks.end();
    if (takes && table.target && table.target->exported) targets.push_back(table.target->name);
  }
  std::ranges::sort(targets);
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  const bool runs = runs_here(framework);
  return {{"runs here", runs ? "yes" : "no", runs},
          {"exported to", targets.empty() ? "-" : fmt::format("{}", fmt::join(targets, ", ")),
           Json(targets)}};
}

std::vector<Fact> facts_of_calibration(const Preset& preset) {
  const FittedCalibration fitted = parse_fitted_calibration(preset.text, std::string(preset.name));
  return {{"runs", grouped(fitted.runs), fitted.runs},
          {"mean error", percent(*fitted.cross_validated_mean), *fitted.cross_validated_mean}};
}

std::vector<Fact> facts_of(const PresetKind& kind, const Preset& preset) {
  if (kind.presets == job_presets) return facts_of_job(preset);
  if (kind.presets == cluster_presets) return facts_of_cluster(preset);
  if (kind.presets == framework_presets) return facts_of_framework(preset);
  return facts_of_calibration(preset);
}

/// Returns as many of the texts, with commas between, as fit into the width.
std::string fitting(const std::vector<std::string>& texts, std::size_t width) {
  std::string line;
  for (const std::string& text : texts) {
    const std::string more = (line.empty() ? "" : ", ") + text;
    if (line.size() + more.size() > width) break;
    line += more;
  }
  return line;
}

/// Returns the presets of a kind in the order of their names.
std::vector<ListedPreset> list_presets(const PresetKind& kind) {
  std::vector<ListedPreset> listed;
  for (const Preset& preset : kind.presets()) {
    listed.push_back({std::string(preset.name), facts_of(kind, preset),
                      other_names(preset.name, kind.presets())});
  }
  return listed;
}

/// Returns a table with a line for each preset, of at most 100 columns.
std::string preset_list_text(const std::vector<ListedPreset>& presets) {
  std::vector<TextColumn> columns = {{"name", true}};
  for (const Fact& fact : presets.at(0).facts) columns.push_back({fact.label});
  for (const ListedPreset& preset : presets) {
    columns[0].cells.push_back(preset.name);
    for (std::size_t i = 0; i < preset.facts.size(); ++i)
      columns[i + 1].cells.push_back(preset.facts[i].text);
  }
  const std::size_t left = kTerminalColumns - std::min(width_of(columns) + 2, kTerminalColumns);
  TextColumn others{"", true};
  for (const ListedPreset& preset : presets) {
    others.cells.push_back(fitting(preset.other_names, left));
    if (!preset.other_names.empty()) others.title = "also";
  }
  columns.push_back(std::move(others));
  return table_text(columns);
}

/// Returns an object for each preset: its name, its facts and its other names.
Json preset_list_json(const std::vector<ListedPreset>& presets) {
  Json list = Json::array();
  for (const ListedPreset& preset : presets) {
    Section facts{"", "facts", preset.facts};
    Json json = {{"name", preset.name}};
    const Json described = description_json({"", "", {facts}});
    json.update(described.at("facts"));
    json["other_names"] = preset.other_names;
    list.push_back(std::move(json));
  }
  return list;
}

/// Returns the names of all kinds in lines of at most 100 columns.
std::string preset_names_text() {
  std::string text;
  for (const PresetKind& kind : preset_kinds()) {
    text += fmt::format("{} ({}):\n", kind.name, kind.presets().size());
    std::string line;
    for (const Preset& preset : kind.presets()) {
      if (line.size() + preset.name.size() + 2 > kTerminalColumns) {
        text += line + "\n";
        line.clear();
      }
      line += fmt::format("  {}", preset.name);
    }
    text += line + "\n";
  }
  return text + "planner list jobs, clusters, frameworks or calibrations has facts of each\n";
}

struct ListOptions {
  std::string kind;  ///< empty: all
  bool json = false;
};

ExitCode run_list(const ListOptions& options) {
  if (options.kind.empty() && !options.json) {
    print_result(preset_names_text());
    return ExitCode::ok;
  }
  Json json = Json::object();
  for (const PresetKind& kind : preset_kinds()) {
    if (!options.kind.empty() && kind.name != options.kind) continue;
    const std::vector<ListedPreset> listed = list_presets(kind);
    if (!options.json) print_result(preset_list_text(listed));
    json[std::string(kind.name)] = preset_list_json(listed);
  }
  if (options.json) print_result(json_text(json));
  return ExitCode::ok;
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ListOptions>();
  CLI::App& command = *app.add_subcommand("list", "built-in jobs, clusters, frameworks and fits");
  std::vector<std::string> kinds;
  for (const PresetKind& kind : preset_kinds()) kinds.emplace_back(kind.name);
  command.add_option("KIND", options->kind, "jobs, clusters, frameworks or calibrations")
      ->type_name("PRESETS")
      ->check([kinds](const std::string& text) -> std::string {
        if (std::ranges::find(kinds, text) != kinds.end()) return "";
        return "jobs, clusters, frameworks or calibrations is required";
      });
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_list(*options); }; });
}

}  // namespace plimsoll
