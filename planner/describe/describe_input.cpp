// Finds out what kind of file an input is, and describes it.
#include "planner/describe/describe_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "models/framework/framework_json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// A KindKey is a key that only files of one kind have.
struct KindKey {
  InputKind kind;
  std::string_view key;
};

// A plan has most keys of the other kinds inside, and a strategy only keys that all have defaults.
constexpr KindKey kKindKeys[] = {
    {InputKind::plan, "programs"},      {InputKind::plan, "stated_vocabulary"},
    {InputKind::calibration, "fitted"}, {InputKind::calibration, "busy_cores"},
    {InputKind::cluster, "levels"},     {InputKind::cluster, "devices_per_node"},
    {InputKind::job, "family"},         {InputKind::framework, "based_on"},
    {InputKind::framework, "can"},      {InputKind::framework, "kernels"},
    {InputKind::framework, "memory"},   {InputKind::framework, "dispatch"},
};

struct PresetsOfKind {
  InputKind kind;
  const std::vector<Preset>& (*presets)();
};

constexpr PresetsOfKind kPresetsOfKinds[] = {{InputKind::job, job_presets},
                                             {InputKind::cluster, cluster_presets},
                                             {InputKind::framework, framework_presets},
                                             {InputKind::calibration, calibration_presets}};

std::optional<Input> preset_input(const std::string& name) {
  for (const PresetsOfKind& of : kPresetsOfKinds) {
    if (const auto text = find_preset(of.presets(), name)) {
      return Input{name, std::string(*text), of.kind};
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse_name(const std::string& name) {
  std::vector<std::string> names;
  for (const PresetsOfKind& of : kPresetsOfKinds) {
    for (const Preset& preset : of.presets()) names.emplace_back(preset.name);
  }
  const std::string near = nearest(name, names);
  throw InputError(
      name, "",
      fmt::format("no such file, and no preset of a job, cluster, framework or calibration{}",
                  near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

Description describe_framework_file(const Input& input) {
  std::optional<Framework> framework = parse_framework(input.text, input.name, all_frameworks());
  if (!framework) {
    throw InputError(input.name, "/based_on",
                     "it is based on no built-in framework; known: " + known_frameworks());
  }
  // planner-run executes the built-in ones only.
  if (find_framework(framework->name) == nullptr) framework->facts.runs_on = RunsOn::nothing;
  const Json json = parse_json(input.text, input.name);
  return describe_framework(*framework, json.value("based_on", std::string()));
}

}  // namespace

InputKind kind_of(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  if (json.is_object()) {
    for (const KindKey& one : kKindKeys) {
      if (json.contains(one.key)) return one.kind;
    }
    for (const std::string_view key : strategy_keys()) {
      if (json.contains(key)) return InputKind::strategy;
    }
  }
  throw InputError(file, "",
                   "no key says that this is a job, cluster, framework, calibration, plan or "
                   "strategy");
}

Input read_input(const std::string& name_or_path) {
  const bool is_name =
      name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".json");
  std::error_code unknown;
  if (is_name && !std::filesystem::exists(name_or_path, unknown) && !unknown) {
    if (auto input = preset_input(name_or_path)) return *std::move(input);
    if (name_or_path.find('=') != std::string::npos) {
      return {name_or_path, strategy_text(parse_strategy(name_or_path)), InputKind::strategy};
    }
    refuse_name(name_or_path);
  }
  std::string text = read_file(name_or_path);
  const InputKind kind = kind_of(text, name_or_path);
  return {name_or_path, std::move(text), kind};
}

Description describe_input(const Input& input) {
  switch (input.kind) {
    case InputKind::job:
      return describe_job(parse_job(input.text, input.name));
    case InputKind::cluster:
      return describe_cluster(parse_cluster(input.text, input.name));
    case InputKind::framework:
      return describe_framework_file(input);
    case InputKind::calibration:
      return describe_calibration(parse_calibration_file(input.text, input.name), input.name);
    case InputKind::strategy:
      return describe_strategy(strategy_from_json_text(input.text, input.name), input.name);
    case InputKind::plan:
      return describe_plan(parse_plan(input.text, input.name));
  }
  INVARIANT(false, "every kind is described");
}

}  // namespace plimsoll
