// Describes a framework: what it can run and what not, how it runs ops, and the sources of both.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "models/framework/capabilities_json.h"
#include "models/framework/framework_fields.h"
#include "models/framework/framework_json.h"
#include "planner/describe/describe_input.h"

namespace plimsoll {
namespace {

Section capability_section(const Capabilities& can) {
  Section section{"what it can run", "can"};
  const Json capabilities = capabilities_json(can);
  for (const auto& [key, capability] : capabilities.items()) {
    const std::string source = capability.at("source").get<std::string>();
    const std::string words = value_words(capability.at("value"));
    section.add(with_blanks(key), source.empty() ? words : fmt::format("{} ({})", words, source),
                capability);
  }
  return section;
}

std::string field_words(bool value) { return value ? "yes" : "no"; }
std::string field_words(std::int64_t value) { return std::to_string(value); }
std::string field_words(double value) { return fmt::format("{:g}", value); }
std::string field_words(Seconds value) { return to_text(value); }
std::string field_words(Bytes value) { return to_text(value); }
template <class Enum>
std::string field_words(Enum value) {
  return with_blanks(words_of(value)[std::size_t(value)]);
}

/// Returns the key without its unit, and the unit.
std::pair<std::string_view, std::string> split_unit(std::string_view key) {
  for (const std::string_view unit : {"bytes", "s"}) {
    if (key.ends_with(unit) && key[key.size() - unit.size() - 1] == '_') {
      return {key.substr(0, key.size() - unit.size() - 1), std::string(unit)};
    }
  }
  return {key, ""};
}

/// Returns a section for each group of fields, each with its source.
std::vector<Section> field_sections(const Framework& framework) {
  const Json values = framework_json(framework);
  std::vector<Section> sections;
  for_each_source(framework.sources, [&](std::string_view group, const std::string& source) {
    Section section{std::string(group), std::string(group)};
    for_each_field(framework, [&](const FieldPlace& place, const auto& value) {
      if (place.group != group) return;
      const Json& from = place.of_allocator ? values.at("allocator") : values;
      const auto [name, unit] = split_unit(place.key);
      section.add(with_blanks(name), field_words(value), from.at(std::string(place.key)), unit);
    });
    if (!source.empty()) section.add("source", source);
    sections.push_back(std::move(section));
  });
  return sections;
}

Section facts_section(const Framework& framework, const std::string& based_on) {
  const FrameworkFacts& facts = framework.facts;
  Section section{"in short", "facts"};
  if (!based_on.empty()) section.add("based on", printable(based_on));
  if (!facts.calibrated_as.value.empty()) {
    section.add("fits of",
                fmt::format("{} hold ({})", facts.calibrated_as.value, facts.calibrated_as.source),
                facts.calibrated_as.value);
  }
  section.add("typical rates",
              facts.typical_rates.source.empty()
                  ? field_words(facts.typical_rates.value)
                  : fmt::format("{} ({})", field_words(facts.typical_rates.value),
                                facts.typical_rates.source),
              facts.typical_rates.value);
  constexpr std::string_view kRuns[] = {"no: its steps are simulated only", "yes, on CPU cores",
                                        "yes, on GPUs"};
  section.add("planner run", std::string(kRuns[std::size_t(facts.runs_on)]),
              facts.runs_on != RunsOn::nothing);
  return section;
}

}  // namespace

Description describe_framework(const Framework& framework, const std::string& based_on) {
  Description description{"framework", framework.name, {}};
  description.sections.push_back(facts_section(framework, based_on));
  description.sections.push_back(capability_section(framework.can));
  for (Section& section : field_sections(framework)) {
    description.sections.push_back(std::move(section));
  }
  return description;
}

}  // namespace plimsoll
