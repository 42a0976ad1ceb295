// Reads the files that --calibration names.
#include "predict/calibration_choice.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "models/calibration/calibration_file.h"
#include "models/presets/preset_names.h"

namespace plimsoll {
namespace {

using Rest = CalibrationChoice::Rest;

std::optional<Rest> word(const std::string& name) {
  if (name == kBuiltInCalibration) return Rest::built_in;
  if (name == kTypicalCalibration) return Rest::typical;
  if (name == kNoCalibration) return Rest::none;
  return std::nullopt;
}

std::string text_of(const std::string& name) {
  std::error_code unknown;  // of a name too long, say: reading it tells
  if (!std::filesystem::exists(name, unknown) && !unknown &&
      !find_preset(calibration_presets(), name)) {
    throw InputError(name, "",
                     fmt::format("no such file; nor is it {}, {}, {} or a built-in fit; {}",
                                 kBuiltInCalibration, kTypicalCalibration, kNoCalibration,
                                 unknown_preset(name, calibration_presets())));
  }
  return read_file_or_preset(name, calibration_presets());
}

/// Notes a name. Throws UsageError for a second one of its sort.
void take(std::string& known, const std::string& name, std::string_view what) {
  if (!known.empty()) {
    throw UsageError(fmt::format("--calibration {}: {} already is {}", name, known, what));
  }
  known = name;
}

}  // namespace

CalibrationChoice own_numbers() {
  CalibrationChoice choice;
  choice.rest = Rest::none;
  return choice;
}

CalibrationChoice read_calibration_choice(const std::vector<std::string>& names) {
  CalibrationChoice choice;
  std::string rest;
  std::optional<FittedCalibration> beside;  // in the measured file
  for (const std::string& name : names) {
    constexpr std::string_view kRest = "what answers for all that was not measured";
    if (const auto named = word(name)) {
      take(rest, name, kRest);
      choice.rest = *named;
      continue;
    }
    std::string text = text_of(name);
    CalibrationFile file = parse_calibration_file(text, name);
    if (file.measured) {
      take(choice.measured_file, name, "the one file that was measured");
      choice.measured_text = std::move(text);
      choice.measured = std::move(file.measured);
      beside = std::move(file.fitted);
      continue;
    }
    take(rest, name, kRest);
    choice.rest = Rest::given;
    choice.fitted = std::move(file.fitted);
    choice.fitted_file = name;
    choice.fitted_text = std::move(text);
  }
  if (rest.empty() && beside) {
    choice.rest = Rest::given;
    choice.fitted = std::move(beside);
    choice.fitted_file = choice.measured_file;
    choice.fitted_text = choice.measured_text;
  }
  return choice;
}

}  // namespace plimsoll
