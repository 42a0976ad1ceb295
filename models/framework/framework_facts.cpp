#include "models/framework/framework_facts.h"

#include <map>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

FrameworkFacts parse_facts(const Preset& preset) {
  const std::string file(preset.name);
  const Json json = parse_json(preset.text, file);
  JsonObject object(json, file);
  FrameworkFacts facts;
  if (object.has("calibrated_as")) {
    JsonObject fact = object.object("calibrated_as");
    facts.calibrated_as = {fact.text("framework"), fact.text("source")};
    fact.finish();
  }
  if (object.has("typical_rates")) {
    JsonObject fact = object.object("typical_rates");
    facts.typical_rates = {fact.boolean("apply"), fact.text("source")};
    fact.finish();
  }
  object.finish();
  return facts;
}

}  // namespace

const FrameworkFacts& framework_facts(std::string_view name) {
  static const std::map<std::string_view, FrameworkFacts> known = [] {
    std::map<std::string_view, FrameworkFacts> facts;
    for (const Preset& preset : framework_presets())
      facts.emplace(preset.name, parse_facts(preset));
    return facts;
  }();
  static const FrameworkFacts nothing;
  const auto found = known.find(name);
  return found == known.end() ? nothing : found->second;
}

std::string calibrated_as(const Framework& framework) {
  const std::string& other = framework_facts(framework.name).calibrated_as.value;
  return other.empty() ? framework.name : other;
}

}  // namespace plimsoll
