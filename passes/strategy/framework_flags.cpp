// Flags of frameworks, as their files list them.
#include "passes/strategy/framework_flags.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

struct Flag {
  /// "KEY=VALUE" or "KEY!=VALUE", all of them where commas join several; "precision" is the job's.
  std::string when;
  /// "{KEY}" stands for the value of a field, "{layout}" for layer_split in Megatron-LM's form.
  std::string text;
};

/// By name of a framework, from models/presets/flags.
using FlagsByFramework = std::map<std::string, std::vector<Flag>, std::less<>>;

FlagsByFramework read_flags() {
  FlagsByFramework all;
  for (const Preset& preset : flag_presets()) {
    const std::string file = std::string(preset.name) + ".json";
    const Json json = parse_json(preset.text, file);
    JsonObject object(json, file);
    object.text("source");
    std::vector<Flag> flags;
    for (JsonObject& flag : object.objects("flags")) {
      flags.push_back({flag.text("when"), flag.text("flag")});
      flag.finish();
    }
    for (const std::string& name : object.texts("frameworks")) all[name] = flags;
    object.finish();
  }
  return all;
}

std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> found;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    found.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

bool holds(std::string_view when, const Job& job, const Strategy& strategy) {
  const auto conditions = pieces(when, ',');
  return std::all_of(conditions.begin(), conditions.end(), [&](std::string_view condition) {
    const std::size_t equals = condition.find('=');
    const bool differs = condition[equals - 1] == '!';
    const auto key = condition.substr(0, differs ? equals - 1 : equals);
    const std::string value =
        key == "precision" ? std::string(to_text(job.precision)) : field_text(strategy, key);
    return (value == condition.substr(equals + 1)) != differs;
  });
}

/// Embedding, layers and loss of each part of the model: "Et*3|t*4|t*3L" (Megatron-LM
/// megatron/arguments.py, --pipeline-model-parallel-layout).
std::string megatron_layout(const std::vector<std::int64_t>& layers) {
  std::string layout = "E";
  for (std::size_t part = 0; part < layers.size(); ++part) {
    if (part > 0) layout += "|";
    if (layers[part] > 0) layout += "t*" + std::to_string(layers[part]);
  }
  return layout + "L";
}

std::string with_values(std::string text, const Strategy& strategy) {
  const std::size_t begin = text.find('{');
  if (begin == text.npos) return text;
  const std::size_t end = text.find('}', begin);
  const std::string key = text.substr(begin + 1, end - begin - 1);
  const std::string value =
      key == "layout" ? megatron_layout(strategy.layer_split) : field_text(strategy, key);
  return text.replace(begin, end + 1 - begin, value);
}

}  // namespace

std::string framework_flags(const Framework& framework, const Job& job, const Strategy& strategy) {
  static const FlagsByFramework known = read_flags();
  const auto named = known.find(framework.name);
  if (named == known.end()) return "";
  std::string line;
  for (const Flag& flag : named->second) {
    if (!holds(flag.when, job, strategy)) continue;
    std::string text = with_values(flag.text, strategy);
    // A switch that several choices need is named once.
    const std::string first = text.substr(0, text.find(' '));
    const bool known = first.starts_with("--use-") && line.find(first) != line.npos;
    if (known) text.erase(0, first.size() + 1);
    if (!text.empty()) line += (line.empty() ? "" : " ") + text;
  }
  return line;
}

}  // namespace plimsoll
