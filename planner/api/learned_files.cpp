// Looks for learned calibrations in the project and in the user's configuration.
#include "planner/api/learned_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/calibration/calibration_file.h"
#include "predict/fit_transfer.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders() {
  std::vector<fs::path> known = {".plimsoll"};
  const auto value = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  if (const std::string config = value("XDG_CONFIG_HOME"); !config.empty())
    known.push_back(fs::path(config) / "plimsoll");
  else if (const std::string home = value("HOME"); !home.empty())
    known.push_back(fs::path(home) / ".config" / "plimsoll");
  return known;
}

bool is_learned_for(const fs::path& file, const Cluster& cluster, const Framework& framework) {
  const std::string name = file.string(), text = read_file(file);
  const Json json = parse_json(text, name);
  if (!json.is_object() || !json.contains("fitted")) return false;
  const std::optional<FittedCalibration> fitted = parse_calibration_file(text, name).fitted;
  return fitted && fitted->learned && fitted->cluster == cluster.name &&
         fitted->framework == calibrated_as(framework) &&
         device_difference(fitted->device, cluster.device).empty();
}

}  // namespace

std::vector<std::string> learned_calibration(const Cluster& cluster, const Framework& framework) {
  // Factors of steps on cores are of one calibration, which has to be given, too.
  if (cluster.device.kind != DeviceKind::gpu) return {};
  for (const fs::path& folder : folders()) {
    std::vector<std::string> found;
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
      if (entry.path().extension() == ".json" && entry.is_regular_file(none) &&
          is_learned_for(entry.path(), cluster, framework))
        found.push_back(entry.path().string());
    }
    std::ranges::sort(found);
    if (found.size() > 1) {
      throw InputError(found[0], "",
                       fmt::format("{} was learned on {} with {}, too: name one with --calibration",
                                   found[1], printable(cluster.name), calibrated_as(framework)));
    }
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace plimsoll
