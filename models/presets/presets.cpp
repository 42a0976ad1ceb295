// Presets by name.
#include "models/presets/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace plimsoll {

std::optional<std::string_view> find_preset(const std::vector<Preset>& presets,
                                            std::string_view name) {
  const auto found = std::ranges::find(presets, name, &Preset::name);
  if (found == presets.end()) return std::nullopt;
  return found->text;
}

std::string read_file_or_preset(const std::string& name, const std::vector<Preset>& presets) {
  const bool is_name = name.find('/') == std::string::npos && !name.ends_with(".json");
  std::error_code unknown;  // of a name too long, say: read_file tells
  if (!is_name || std::filesystem::exists(name, unknown) || unknown) return read_file(name);
  if (const auto text = find_preset(presets, name)) return std::string(*text);
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  const std::string near = nearest(name, names);
  throw InputError(name, "",
                   fmt::format("no such file; nor is it a preset{}, which are {}",
                               near.empty() ? "" : fmt::format(" (did you mean {}?)", near),
                               fmt::join(names, ", ")));
}

}  // namespace plimsoll
