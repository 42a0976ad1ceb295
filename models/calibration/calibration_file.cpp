// A calibration file is split into its measured and its fitted part.
#include "models/calibration/calibration_file.h"

#include "base/error.h"
#include "base/json.h"
#include "base/schema_note.h"
#include "models/kinds/file_kind.h"

namespace plimsoll {
namespace {

constexpr const char* kFitted = "fitted";

}  // namespace

CalibrationFile parse_calibration_file(std::string_view text, const std::string& file) {
  Json whole = parse_file_of(FileKind::calibration, text, file);
  CalibrationFile calibration;
  if (!whole.is_object() || !whole.contains(kFitted)) {
    calibration.measured = parse_calibration(text, file);
    return calibration;
  }
  const Json fitted = {{kFitted, whole[kFitted]}};
  calibration.fitted = parse_fitted_calibration(json_text(fitted), file);
  whole.erase(kFitted);
  drop_schema_note(whole);
  if (!whole.empty()) calibration.measured = parse_calibration(json_text(whole), file);
  return calibration;
}

std::string calibration_file_text(const CalibrationFile& calibration) {
  INVARIANT(calibration.measured || calibration.fitted, "a calibration file holds something");
  if (!calibration.measured) return fitted_calibration_text(*calibration.fitted);
  const std::string measured = calibration_text(*calibration.measured);
  if (!calibration.fitted) return measured;
  Json whole = parse_json(measured, "measured");
  whole[kFitted] = parse_json(fitted_calibration_text(*calibration.fitted), kFitted)[kFitted];
  return json_text(whole);
}

}  // namespace plimsoll
