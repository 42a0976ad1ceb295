// Preset names: which preset a user's word for it means.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/presets/presets.h"

namespace plimsoll {

/// A PresetKind is a group of presets whose names users give.
struct PresetKind {
  std::string_view name;  ///< "jobs", as `planner list` has it
  const std::vector<Preset>& (*presets)();
};
/// Returns jobs, clusters, frameworks and calibrations.
std::span<const PresetKind> preset_kinds();

/// Returns the name of the preset that a word means, or nothing when it means none:
/// - the preset's own name, or one of its names in models/presets/names; case and '-' do not count,
///   nor does an organisation of Hugging Face in front ("Qwen/Qwen3-8B") or an ending such as
///   "-Instruct";
/// - else some of the '-'-separated parts of a preset's name ("4090" of rtx-4090).
/// Throws InputError with the candidates when several presets have these parts.
std::optional<std::string_view> preset_meant(const std::string& word,
                                             const std::vector<Preset>& presets);

/// Returns the other names of a preset, as models/presets/names has them.
std::vector<std::string> other_names(std::string_view preset, const std::vector<Preset>& presets);

/// Whether a word for a cluster names a kind of node ("dgx-h100-80gb"), not a kind of device
/// ("h100", "rtx-4090"): one of its parts is listed so in models/presets/names.
bool names_node(const std::string& word);

/// Whether a word is a name of Hugging Face, with a known organisation in front: "Qwen/Qwen3-0.6B".
bool is_model_id(const std::string& word, const std::vector<Preset>& presets);

/// Returns words for a name that no preset has: the nearest one or those of its family, and the
/// command that lists all.
std::string unknown_preset(const std::string& word, const std::vector<Preset>& presets);

}  // namespace plimsoll
