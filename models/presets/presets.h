// Presets: files of models/presets that are built into the programs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct Preset {
  std::string_view name;  ///< of the file, without .json
  std::string_view text;
};

/// models/presets/clusters, by name.
const std::vector<Preset>& cluster_presets();
/// models/presets/jobs, by name.
const std::vector<Preset>& job_presets();
/// models/presets/calibrations: fitted ones (models/calibration/fitted_calibration.h),
/// CLUSTER--FRAMEWORK.
const std::vector<Preset>& calibration_presets();

/// models/presets/frameworks, by name (models/framework/framework_json.h).
const std::vector<Preset>& framework_presets();

/// models/presets/flags: how frameworks spell choices of a strategy
/// (passes/strategy/framework_flags.h).
const std::vector<Preset>& flag_presets();

/// models/presets/gpus: datasheets of generations of GPUs (models/cluster/gpu_generation.h).
const std::vector<Preset>& gpu_presets();

/// models/presets/spreads: how far published runs were from predictions, as scripts/spreads found
/// (predict/step_interval.h, published/memory_interval.h), and what fits found of rates
/// (predict/typical_calibration.h).
const std::vector<Preset>& spread_presets();

/// models/presets/documents: what documents of published runs say beside their tables
/// (published/row_rules.h).
const std::vector<Preset>& document_presets();

/// models/presets/words: what words in rows of published runs mean (published/row_rules.h).
const std::vector<Preset>& word_presets();

/// Text of the preset of that name; nothing where there is none.
std::optional<std::string_view> find_preset(const std::vector<Preset>& presets,
                                            std::string_view name);

/// The file's text or, where no file is there and `name` is a bare name, that of the preset. Throws
/// InputError as read_file does; for a bare name with the presets that there are.
std::string read_file_or_preset(const std::string& name, const std::vector<Preset>& presets);

}  // namespace plimsoll
