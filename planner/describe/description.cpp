// Descriptions are written as text and as JSON.
#include "planner/describe/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reports/numbers.h"

namespace plimsoll {
namespace {

std::string json_key(const std::string& name, const std::string& unit) {
  std::string key = unit.empty() ? name : name + "_" + unit;
  std::ranges::replace(key, ' ', '_');
  std::ranges::replace(key, '-', '_');
  return key;
}

Json section_json(const Section& section) {
  Json json = section.is_list ? Json::array() : Json::object();
  for (const Fact& fact : section.facts) {
    if (section.is_list) {
      json.push_back(fact.value);
    } else {
      json[json_key(fact.label, fact.unit)] = fact.value;
    }
  }
  return json;
}

}  // namespace

void Section::add(std::string label, std::string text) {
  Json value = text;
  add(std::move(label), std::move(text), std::move(value));
}

void Section::add(std::string label, std::string text, Json value, std::string unit) {
  facts.push_back({std::move(label), std::move(text), std::move(value), std::move(unit)});
}

void Section::add_count(std::string label, std::int64_t count) {
  add(std::move(label), grouped(count), count);
}

void Section::add_bytes(std::string label, Bytes bytes) {
  add(std::move(label), to_text(bytes), bytes.count(), "bytes");
}

void Section::add_time(std::string label, Seconds time) {
  add(std::move(label), to_text(time), time.value(), "s");
}

std::string description_text(const Description& description) {
  constexpr std::size_t kLeastWidth = 20, kMostWidth = 36;
  std::string text = fmt::format("{} {}\n", description.kind, description.name);
  for (const Section& section : description.sections) {
    if (section.facts.empty()) continue;
    text += section.title + "\n";
    std::size_t width = kLeastWidth;
    for (const Fact& fact : section.facts) {
      if (fact.label.size() <= kMostWidth) width = std::max(width, fact.label.size());
    }
    for (const Fact& fact : section.facts) {
      text += fact.label.size() <= kMostWidth
                  ? fmt::format("  {:<{}}  {}\n", fact.label, width, fact.text)
                  : fmt::format("  {}\n  {:<{}}  {}\n", fact.label, "", width, fact.text);
    }
  }
  return text;
}

Json description_json(const Description& description) {
  Json json = {{"kind", description.kind}, {"name", description.name}};
  for (const Section& section : description.sections) {
    json[section.key] = section_json(section);
  }
  return json;
}

}  // namespace plimsoll
