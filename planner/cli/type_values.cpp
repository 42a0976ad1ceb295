// Lists values by the type of an option: presets by name, strategies key by key.
#include "planner/cli/type_values.h"

#include <algorithm>

#include "base/text.h"
#include "interop/hardware/nccl_rows.h"
#include "models/job/job_words.h"
#include "models/presets/preset_names.h"
#include "models/presets/presets.h"
#include "passes/pipeline.h"
#include "passes/strategy/strategy.h"
#include "passes/strategy/strategy_fields.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

struct PresetType {
  std::string_view type;
  const std::vector<Preset>& (*presets)();
  bool files = true;
};
constexpr PresetType kPresetTypes[] = {
    {"JOB", job_presets},
    {"CLUSTER", cluster_presets},
    {"FRAMEWORK", framework_presets},
    {"CALIBRATION", calibration_presets},
    {"SCHEMA", schema_presets, false},
};

/// Words that --calibration takes beside names and files (predict/calibration_choice.h).
constexpr std::string_view kCalibrations[] = {"built-in", "typical", "none"};

/// Values that nobody can list, and that are no files.
constexpr std::string_view kFree[] = {"BYTES", "DATE", "NAME", "RATE", "TIME"};

std::vector<NextWord> candidates(std::span<const std::string_view> words) {
  std::vector<NextWord> found;
  for (const std::string_view word : words) found.push_back({std::string(word)});
  return found;
}

/// Completes the last pair of "mp=2,pp=": a key with its =, then its usual values.
std::vector<NextWord> pairs(std::string_view begin) {
  const std::size_t comma = begin.rfind(',');
  const std::string before(comma == begin.npos ? "" : begin.substr(0, comma + 1));
  const std::string_view last = begin.substr(before.size());
  const std::size_t equals = last.find('=');
  std::vector<NextWord> found;
  if (equals == last.npos) {
    for (const std::string_view key : strategy_keys())
      found.push_back({before + std::string(key) + "=", shortened(meaning_of(key), 70)});
  } else {
    const std::string_view key = last.substr(0, equals);
    for (const std::string& value : usual_values(key))
      found.push_back({before + std::string(key) + "=" + value});
  }
  return found;
}

/// Returns every preset that planner describe takes.
std::vector<NextWord> all_presets() {
  std::vector<NextWord> found;
  for (const PresetType& of : kPresetTypes) {
    if (!of.files) continue;
    for (const Preset& preset : of.presets()) found.push_back({std::string(preset.name)});
  }
  return found;
}

}  // namespace

NextWords values_of_type(std::string_view type, std::string_view begin) {
  if (type == "KEY=VALUE" || type == "CHOICES") return {pairs(begin)};
  if (type == "STRATEGY") return {pairs(begin), true};
  if (type == "INPUT") return {all_presets(), true};
  if (type == "PRECISION") return {candidates(kPrecisions)};
  if (type == "FAMILY") return {candidates(kFamilies)};
  if (type == "COLLECTIVE") return {candidates(nccl_collectives())};
  NextWords found;
  if (type == "PRESETS") {
    for (const PresetKind& kind : preset_kinds()) found.words.push_back({std::string(kind.name)});
    return found;
  }
  if (type == "STAGE") {
    for (const std::string& name : stage_names()) found.words.push_back({name});
    return found;
  }
  if (std::ranges::find(kFree, type) != std::end(kFree)) return found;
  found.files = true;
  const auto of = std::ranges::find(kPresetTypes, type, &PresetType::type);
  if (of == std::end(kPresetTypes)) return found;
  if (type == "CALIBRATION") found.words = candidates(kCalibrations);
  for (const Preset& preset : of->presets()) found.words.push_back({std::string(preset.name)});
  found.files = of->files;
  return found;
}

}  // namespace plimsoll
