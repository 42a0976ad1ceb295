// Calibration files that were measured, fitted, or both.
#include "models/calibration/calibration_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

Calibration measured() {
  Calibration calibration;
  calibration.device = "NVIDIA H100 SXM5 80GB";
  calibration.backend = "cuda";
  calibration.date = "2026-11-20";
  calibration.collectives = {
      {OpKind::all_reduce, 8, Bytes(1 << 20), {Seconds(1e-4), Seconds(1e-6), 20, false}}};
  return calibration;
}

FittedCalibration fitted() {
  const std::string name = "dgx-h100-80gb--megatron-lm";
  return parse_fitted_calibration(*find_preset(calibration_presets(), name), name);
}

TEST(CalibrationFile, HoldsEitherOrBoth) {
  const CalibrationFile both{measured(), fitted()};
  const std::string text = calibration_file_text(both);
  const CalibrationFile read = parse_calibration_file(text, "f.json");
  EXPECT_EQ(read.measured, both.measured);
  EXPECT_EQ(read.fitted, both.fitted);
  EXPECT_EQ(calibration_file_text(read), text);

  EXPECT_EQ(calibration_file_text({measured(), std::nullopt}), calibration_text(measured()));
  const CalibrationFile points = parse_calibration_file(calibration_text(measured()), "f.json");
  EXPECT_TRUE(points.measured && !points.fitted);
  EXPECT_EQ(calibration_file_text({std::nullopt, fitted()}), fitted_calibration_text(fitted()));
  const CalibrationFile fit = parse_calibration_file(fitted_calibration_text(fitted()), "f.json");
  EXPECT_TRUE(!fit.measured && fit.fitted);
}

TEST(CalibrationFile, ErrorsNameTheirPlaceInEitherHalf) {
  const std::string text = calibration_file_text({measured(), fitted()});
  const auto refused = [&](const std::string& from, const std::string& to, const char* place) {
    std::string bad = text;
    bad.replace(bad.find(from), from.size(), to);
    try {
      parse_calibration_file(bad, "f.json");
      ADD_FAILURE() << "accepted: " << to;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("f.json: at ") + place),
                std::string::npos)
          << error.what();
    }
  };
  refused("\"ranks\": 8", "\"ranks\": 0", "/collectives/0/ranks");
  refused("\"framework\"", "\"frameworks\"", "/fitted");
  refused("\"backend\"", "\"backends\"", "/backend");
}

}  // namespace
}  // namespace plimsoll
