// A framework in JSON: whole, as plan files hold it, and as a framework file states it.
#include "models/framework/framework_json.h"

#include <algorithm>
#include <array>

#include "base/field_list.h"
#include "models/framework/capabilities_json.h"
#include "models/framework/framework_fields.h"
#include "models/kinds/file_kind.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 3> kRunsOn = {"nothing", "cpu_core", "gpu"};

template <class Value>
Allowed allowed_in(const FieldPlace& place, const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return words_of(value);
  } else if constexpr (std::is_same_v<Value, Bytes>) {
    return {};
  } else {
    return {place.least, place.most};
  }
}

template <class Value>
Json json_of(const FieldPlace& place, const Value& value) {
  return value_json(value, allowed_in(place, value), Units::numbers);
}

template <class Value>
void read(JsonObject& object, const FieldPlace& place, Value& value) {
  read_value(object, place.key, allowed_in(place, value), Units::numbers, value);
}

/// The fields of one group that a framework file states, and where they are from.
void read_group(JsonObject object, std::string_view group, Framework& framework) {
  for_each_field(framework, [&](const FieldPlace& place, auto& value) {
    if (place.group == group && object.has(place.key)) read(object, place, value);
  });
  for_each_source(framework.sources, [&](std::string_view of, std::string& source) {
    if (of == group) source = object.text("source");
  });
  object.finish();
}

void read_facts(JsonObject& object, FrameworkFacts& facts) {
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
  if (object.has("runs_on")) facts.runs_on = RunsOn(object.choice("runs_on", kRunsOn));
}

}  // namespace

Json framework_json(const Framework& framework) {
  Json json = {{"name", framework.name}, {"can", capabilities_json(framework.can)}};
  for_each_field(framework, [&](const FieldPlace& place, const auto& value) {
    Json& into = place.of_allocator ? json["allocator"] : json;
    into[std::string(place.key)] = json_of(place, value);
  });
  for_each_source(framework.sources, [&](std::string_view group, const std::string& source) {
    json["sources"][std::string(group)] = source;
  });
  return json;
}

std::string framework_text(const Framework& framework, const std::string& source) {
  const Framework* named = find_framework(framework.name);
  const Framework* base = named;
  if (base == nullptr) base = find_framework(framework.facts.calibrated_as.value);
  Json json = {{"name", framework.name + (named != nullptr ? "-imported" : "")}};
  if (base != nullptr) {
    json["based_on"] = base->name;
    const std::string& fits = base->facts.calibrated_as.value;
    json["calibrated_as"] = {{"framework", fits.empty() ? base->name : fits}, {"source", source}};
  }
  const Json before = framework_json(base != nullptr ? *base : Framework{});
  const Json after = framework_json(framework);
  for (const auto& [key, stated] : after.at("can").items()) {
    const Json& value = stated.at("value");
    if (before.at("can").at(key).at("value") != value)
      json["can"][key] = {{"value", value}, {"source", source}};
  }
  for_each_field(framework, [&](const FieldPlace& place, const auto& value) {
    const Json& beside = place.of_allocator ? before.at("allocator") : before;
    const std::string key(place.key), group(place.group);
    if (beside.at(key) != json_of(place, value)) json[group][key] = json_of(place, value);
  });
  for (const std::string_view group : kGroups) {
    if (json.contains(group)) json[std::string(group)]["source"] = source;
  }
  return json_text(json);
}

Framework framework_from(JsonObject object) {
  Framework framework;
  framework.name = object.text("name");
  read_capabilities(object.object("can"), Stated::all, framework.can);
  JsonObject allocator = object.object("allocator");
  for_each_field(framework, [&](const FieldPlace& place, auto& value) {
    read(place.of_allocator ? allocator : object, place, value);
  });
  allocator.finish();
  JsonObject sources = object.object("sources");
  for_each_source(framework.sources, [&](std::string_view group, std::string& source) {
    source = sources.text(group);
  });
  sources.finish();
  object.finish();
  framework.facts = facts_of(framework.name);
  return framework;
}

void set_fields(JsonObject object, Framework& framework) {
  for_each_field(framework, [&](const FieldPlace& place, auto& value) {
    if (!place.of_allocator && object.has(place.key)) read(object, place, value);
  });
  object.finish();
}

std::optional<Framework> parse_framework(std::string_view text, const std::string& file,
                                         std::span<const Framework> known) {
  const Json json = parse_file_of(FileKind::framework, text, file);
  JsonObject object(json, file);
  Framework framework;
  if (object.has("based_on")) {
    const auto base = std::ranges::find(known, object.text("based_on"), &Framework::name);
    if (base == known.end()) return std::nullopt;
    framework = *base;
  }
  framework.name = object.text("name");
  read_facts(object, framework.facts);
  if (object.has("can")) read_capabilities(object.object("can"), Stated::some, framework.can);
  for (const std::string_view group : kGroups) {
    if (object.has(group)) read_group(object.object(group), group, framework);
  }
  object.finish();
  return framework;
}

}  // namespace plimsoll
