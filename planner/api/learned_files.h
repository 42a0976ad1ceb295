// Learned files: calibrations that `planner learn` wrote, where commands look for them.
#pragma once

#include <string>
#include <vector>

#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns the file that was learned on this cluster with the framework's numbers, as --calibration
/// names it; nothing if there is none. Files lie in .plimsoll, then in $XDG_CONFIG_HOME/plimsoll or
/// ~/.config/plimsoll. Other files in these folders do not matter. Those of CPU cores have to be
/// named. Throws InputError if a folder has two learned files for it, or one that cannot be read.
std::vector<std::string> learned_calibration(const Cluster& cluster, const Framework& framework);

}  // namespace plimsoll
