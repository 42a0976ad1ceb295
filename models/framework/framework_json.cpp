// A framework in JSON: whole, as plan files hold it, and as a framework file states it.
#include "models/framework/framework_json.h"

#include <algorithm>
#include <array>

#include "models/framework/capabilities_json.h"
#include "models/framework/framework_fields.h"
#include "models/kinds/file_kind.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;
constexpr std::array<std::string_view, 3> kRunsOn = {"nothing", "cpu_core", "gpu"};

Json json_of(bool value) { return value; }
Json json_of(std::int64_t value) { return value; }
Json json_of(double value) { return value; }
Json json_of(Seconds value) { return value.value(); }
Json json_of(Bytes value) { return value.count(); }
template <class Enum>
Json json_of(Enum value) {
  return words_of(value)[std::size_t(value)];
}

void read(JsonObject& object, const FieldPlace& place, bool& value) {
  value = object.boolean(place.key);
}
void read(JsonObject& object, const FieldPlace& place, std::int64_t& value) {
  value = object.integer(place.key, std::int64_t(place.least), std::int64_t(place.most));
}
void read(JsonObject& object, const FieldPlace& place, double& value) {
  value = object.number(place.key, place.least, place.most);
}
void read(JsonObject& object, const FieldPlace& place, Seconds& value) {
  value = Seconds(object.number(place.key, place.least, place.most));
}
void read(JsonObject& object, const FieldPlace& place, Bytes& value) {
  value = Bytes(object.integer(place.key, 0, kMostBytes));
}
template <class Enum>
void read(JsonObject& object, const FieldPlace& place, Enum& value) {
  value = static_cast<Enum>(object.choice(place.key, words_of(value)));
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
    into[std::string(place.key)] = json_of(value);
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
    if (beside.at(key) != json_of(value)) json[group][key] = json_of(value);
  });
  for (const std::string_view group : kGroups) {
    if (json.contains(group)) json[std::string(group)]["source"] = source;
  }
  return json_text(json);
}

Framework framework_from(JsonObject object) {
  Framework framework;
  framework.name = object.text("name");
  framework.can = capabilities_from(object.object("can"));
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
  if (object.has("can")) read_stated(object.object("can"), framework.can);
  for (const std::string_view group : kGroups) {
    if (object.has(group)) read_group(object.object(group), group, framework);
  }
  object.finish();
  return framework;
}

}  // namespace plimsoll
