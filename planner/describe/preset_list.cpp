// Lists presets with the facts by which one is chosen.
#include "planner/describe/preset_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "interop/flags/flag_table.h"
#include "models/calibration/calibration_file.h"
#include "models/framework/framework.h"
#include "passes/pipeline.h"
#include "planner/describe/describe_input.h"
#include "reports/numbers.h"
#include "reports/text_lines.h"

namespace plimsoll {
namespace {

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
          {"mean error", percent(fitted.cross_validated_mean), fitted.cross_validated_mean}};
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

}  // namespace

std::vector<ListedPreset> list_presets(const PresetKind& kind) {
  std::vector<ListedPreset> listed;
  for (const Preset& preset : kind.presets()) {
    listed.push_back({std::string(preset.name), facts_of(kind, preset),
                      other_names(preset.name, kind.presets())});
  }
  return listed;
}

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

}  // namespace plimsoll
