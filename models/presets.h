// Presets: files of models/presets that are built into the programs.
#pragma once

#include <string_view>
#include <vector>

namespace plimsoll {

struct Preset {
  std::string_view name;  ///< of the file, without .json
  std::string_view text;
};

/// models/presets/clusters, by name.
const std::vector<Preset>& cluster_presets();
/// models/presets/calibrations: fitted ones (models/fitted_calibration.h), CLUSTER--FRAMEWORK.
const std::vector<Preset>& calibration_presets();

}  // namespace plimsoll
