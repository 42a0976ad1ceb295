// Presets are files of models/presets that are compiled into the programs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct Preset {
  std::string_view name;  ///< name of the file, without its ending
  std::string_view text;
};

/// The tables below are each ordered by name. The first has models/presets/clusters.
const std::vector<Preset>& cluster_presets();
/// Returns models/presets/jobs.
const std::vector<Preset>& job_presets();
/// Returns the fitted calibrations (models/calibration/fitted_calibration.h) of
/// models/presets/calibrations, which are named CLUSTER--FRAMEWORK.
const std::vector<Preset>& calibration_presets();
/// Returns models/presets/folds: these fits without the runs of one of their documents, named
/// CLUSTER--FRAMEWORK--without--DOCUMENT. They predict runs of that document.
const std::vector<Preset>& fold_presets();

/// Returns models/presets/frameworks (models/framework/framework_json.h).
const std::vector<Preset>& framework_presets();

/// Returns models/presets/flags: how frameworks spell choices of a strategy
/// (interop/flags/framework_flags.h).
const std::vector<Preset>& flag_presets();

/// Returns models/presets/gpu_generations: datasheets of generations of GPUs
/// (models/cluster/gpu_generation.h).
const std::vector<Preset>& gpu_generation_presets();

/// Returns models/presets/spreads. They say how far predictions were from published runs, as
/// lab/spreads found (predict/step_interval.h, plan/memory_interval.h), and which rates
/// fits found (predict/default_efficiency.h).
const std::vector<Preset>& spread_presets();

/// Returns models/presets/readers: marks of files that are not read, options of launchers, and
/// vocabularies of tokenizers (interop).
const std::vector<Preset>& reader_presets();

/// Returns models/presets/architectures: the models that a Hugging Face config.json may describe,
/// each named as its model_type (interop/imports/architecture.h).
const std::vector<Preset>& architecture_presets();

/// Returns models/presets/networks: what networks between nodes reach
/// (models/cluster/network_kind.h).
const std::vector<Preset>& network_presets();

/// Returns models/presets/names: what users call presets, by kind
/// (models/presets/preset_names.h).
const std::vector<Preset>& name_presets();

/// Returns models/presets/commands: sentence and examples of each command's help, by its full name
/// (command_line/help.h).
const std::vector<Preset>& command_presets();

/// Returns models/presets/schemas: a JSON Schema of each kind of file.
const std::vector<Preset>& schema_presets();

/// Returns models/presets/completions: for each shell the script with which it completes `planner`.
/// The scripts call `planner complete`.
const std::vector<Preset>& completion_presets();

/// Returns the text of the preset of that name, or nothing where there is none.
std::optional<std::string_view> find_preset(const std::vector<Preset>& presets,
                                            std::string_view name);

/// Returns the file's text or, if there is no such file, the text of the preset that `name` means
/// (preset_meant()). Throws InputError as read_file does, and for a name of several presets. For an
/// unknown bare name the message has the nearest one.
std::string read_file_or_preset(const std::string& name, const std::vector<Preset>& presets);

}  // namespace plimsoll
