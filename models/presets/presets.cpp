// Presets by name.
#include "models/presets/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "models/presets/preset_names.h"

namespace plimsoll {

std::optional<std::string_view> find_preset(const std::vector<Preset>& presets,
                                            std::string_view name) {
  const auto found = std::ranges::find(presets, name, &Preset::name);
  if (found == presets.end()) return std::nullopt;
  return found->text;
}

std::string read_file_or_preset(const std::string& name, const std::vector<Preset>& presets) {
  std::error_code unknown;  // of a name too long, say: read_file tells
  if (std::filesystem::exists(name, unknown) || unknown) return read_file(name);
  const bool is_name = name.find('/') == std::string::npos && !name.ends_with(".json");
  if (const auto meant = preset_meant(name, presets)) {
    return std::string(*find_preset(presets, *meant));
  }
  if (!is_name && !is_model_id(name, presets)) return read_file(name);
  throw InputError(name, "",
                   fmt::format("no such file or preset; {}", unknown_preset(name, presets)));
}

}  // namespace plimsoll
