// Finds the preset that a user's word means.
#include "models/presets/preset_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll {
namespace {

/// The most candidates that a message lists.
constexpr std::size_t kMostCandidates = 8;

constexpr PresetKind kKinds[] = {{"jobs", job_presets},
                                 {"clusters", cluster_presets},
                                 {"frameworks", framework_presets},
                                 {"calibrations", calibration_presets}};

/// The names of one kind of presets, as a file of models/presets/names has them.
struct NameTable {
  std::vector<std::string> organisations, endings, nodes;
  std::map<std::string, std::vector<std::string>, std::less<>> names;  ///< by preset
};

const PresetKind* kind_of(const std::vector<Preset>& presets) {
  const auto kind = std::ranges::find_if(
      kKinds, [&](const PresetKind& one) { return &one.presets() == &presets; });
  return kind == std::end(kKinds) ? nullptr : kind;
}

NameTable read_table(const Preset& preset) {
  const std::string file(preset.name);
  const Json json = parse_json(preset.text, file);
  JsonObject object(json, file);
  NameTable table;
  object.text("source");
  if (object.has("organisations")) table.organisations = object.texts("organisations");
  if (object.has("endings")) table.endings = object.texts("endings");
  if (object.has("nodes")) table.nodes = object.texts("nodes");
  JsonObject aliases = object.object("aliases");
  for (const auto& [name, list] : json.at("aliases").items())
    table.names[name] = aliases.texts(name);
  aliases.finish();
  object.finish();
  return table;
}

const NameTable& table_of(const std::vector<Preset>& presets) {
  static const std::map<std::string, NameTable, std::less<>> tables = [] {
    std::map<std::string, NameTable, std::less<>> read;
    for (const Preset& preset : name_presets())
      read.emplace(std::string(preset.name), read_table(preset));
    return read;
  }();
  static const NameTable none;
  const PresetKind* kind = kind_of(presets);
  const auto found = kind == nullptr ? tables.end() : tables.find(kind->name);
  return found == tables.end() ? none : found->second;
}

std::string lower(std::string_view text) {
  std::string low(text);
  std::ranges::transform(low, low.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return low;
}

/// Returns the text in lower case, without what separates its parts.
std::string squeezed(std::string_view text) {
  std::string plain = lower(text);
  std::erase_if(plain, [](char c) { return c == '-' || c == '_' || c == ' '; });
  return plain;
}

/// Returns the word without a known organisation in front of it, or nothing when it is a path.
std::optional<std::string> without_organisation(const std::string& word, const NameTable& table) {
  const std::size_t slash = word.find('/');
  if (slash == word.npos) return word;
  const std::string organisation = lower(word.substr(0, slash));
  const bool known = std::ranges::any_of(
      table.organisations, [&](const std::string& one) { return lower(one) == organisation; });
  const std::string rest = word.substr(slash + 1);
  if (!known || rest.find('/') != rest.npos) return std::nullopt;
  return rest;
}

std::string without_ending(const std::string& word, const NameTable& table) {
  for (const std::string& ending : table.endings) {
    if (lower(word).ends_with(ending)) return word.substr(0, word.size() - ending.size());
  }
  return word;
}

/// Returns the preset with this name or other name.
std::optional<std::string_view> preset_called(const std::string& word,
                                              const std::vector<Preset>& presets,
                                              const NameTable& table) {
  const std::string wanted = squeezed(word);
  for (const Preset& preset : presets) {
    if (squeezed(preset.name) == wanted) return preset.name;
    const auto names = table.names.find(preset.name);
    if (names == table.names.end()) continue;
    for (const std::string& name : names->second) {
      if (squeezed(name) == wanted) return preset.name;
    }
  }
  return std::nullopt;
}

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : lower(name)) {
    if (c == '-' || c == '_' || c == ' ') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  std::erase(parts, "");
  return parts;
}

/// Returns the presets whose names have all parts of the word.
std::vector<std::string_view> presets_with_parts(const std::string& word,
                                                 const std::vector<Preset>& presets) {
  const std::vector<std::string> wanted = parts_of(word);
  std::vector<std::string_view> found;
  if (wanted.empty()) return found;
  for (const Preset& preset : presets) {
    const std::vector<std::string> parts = parts_of(preset.name);
    const bool has_all = std::ranges::all_of(wanted, [&](const std::string& part) {
      return std::ranges::find(parts, part) != parts.end();
    });
    if (has_all) found.push_back(preset.name);
  }
  return found;
}

std::string list_command(const std::vector<Preset>& presets) {
  const PresetKind* kind = kind_of(presets);
  return kind == nullptr ? "planner list" : fmt::format("planner list {}", kind->name);
}

}  // namespace

std::span<const PresetKind> preset_kinds() { return kKinds; }

std::optional<std::string_view> preset_meant(const std::string& word,
                                             const std::vector<Preset>& presets) {
  const auto own = std::ranges::find(presets, word, &Preset::name);
  if (own != presets.end()) return own->name;
  const NameTable& table = table_of(presets);
  const std::optional<std::string> name = without_organisation(word, table);
  if (!name) return std::nullopt;
  for (const std::string& one : {*name, without_ending(*name, table)}) {
    if (const auto called = preset_called(one, presets, table)) return called;
  }
  std::vector<std::string_view> found = presets_with_parts(*name, presets);
  if (found.empty()) return std::nullopt;
  if (found.size() == 1) return found.front();
  const std::string rest =
      found.size() > kMostCandidates
          ? fmt::format(" and {} more: {}", found.size() - kMostCandidates, list_command(presets))
          : "";
  found.resize(std::min(found.size(), kMostCandidates));
  throw InputError(word, "",
                   fmt::format("no such file; several presets have this in their names: {}{}",
                               fmt::join(found, ", "), rest));
}

std::vector<std::string> other_names(std::string_view preset, const std::vector<Preset>& presets) {
  const NameTable& table = table_of(presets);
  const auto names = table.names.find(preset);
  return names == table.names.end() ? std::vector<std::string>() : names->second;
}

bool names_node(const std::string& word) {
  const std::vector<std::string>& nodes = table_of(cluster_presets()).nodes;
  return std::ranges::any_of(parts_of(word), [&](const std::string& part) {
    return std::ranges::find(nodes, part) != nodes.end();
  });
}

std::string unknown_preset(const std::string& word, const std::vector<Preset>& presets) {
  const std::string name = without_organisation(word, table_of(presets)).value_or(word);
  std::vector<std::string> names, family;
  for (const Preset& preset : presets) {
    names.emplace_back(preset.name);
    if (parts_of(preset.name).front() == parts_of(name + "-").front())
      family.emplace_back(preset.name);
  }
  family.resize(std::min(family.size(), kMostCandidates));
  const std::string near = nearest(word, names);
  std::string text;
  if (!near.empty()) {
    text = fmt::format("did you mean {}? ", near);
  } else if (!family.empty()) {
    text = fmt::format("presets of this family: {}; ", fmt::join(family, ", "));
  }
  return fmt::format("{}{} prints all names", text, list_command(presets));
}

bool is_model_id(const std::string& word, const std::vector<Preset>& presets) {
  const auto name = without_organisation(word, table_of(presets));
  return name && *name != word;
}

}  // namespace plimsoll
