// Preset list: the names of built-in jobs, clusters, frameworks and calibrations, with a few facts.
#pragma once

#include <string>
#include <vector>

#include "models/presets/preset_names.h"
#include "planner/describe/describe_input.h"

namespace plimsoll {

struct ListedPreset {
  std::string name;
  std::vector<Fact> facts;               ///< presets of a kind have facts with the same labels
  std::vector<std::string> other_names;  ///< what else users may call it
};

/// Returns the presets of a kind in the order of their names.
std::vector<ListedPreset> list_presets(const PresetKind& kind);

/// Returns a table with a line for each preset, of at most 100 columns.
std::string preset_list_text(const std::vector<ListedPreset>& presets);
/// Returns an object for each preset: its name, its facts and its other names.
Json preset_list_json(const std::vector<ListedPreset>& presets);

/// Returns the names of all kinds in lines of at most 100 columns.
std::string preset_names_text();

}  // namespace plimsoll
