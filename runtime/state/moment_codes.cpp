// Codes of moments in 8 bits are made, and blocks of them are read and written.
#include "runtime/state/moment_codes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace plimsoll {

namespace {

MomentCode make_code(bool negative) {
  std::vector<double> values = {0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (negative ? 1 : 2) << decade;
    const double top = std::pow(10.0, decade - 6);
    for (int part = 0; part < parts; ++part) {
      const double middle = top * (0.1 + 0.9 * (part + 0.5) / parts);
      values.push_back(middle);
      if (negative) values.push_back(-middle);
    }
  }
  std::ranges::sort(values);
  MomentCode code;
  INVARIANT(values.size() == code.size(), "a code for each value of 8 bits");
  std::ranges::copy(values, code.begin());
  return code;
}

/// Borders between neighbouring codes, the last one open.
MomentCode borders_of(const MomentCode& code) {
  MomentCode borders = code;
  for (std::size_t i = 0; i + 1 < code.size(); ++i) borders[i] = 0.5f * (code[i] + code[i + 1]);
  return borders;
}

/// Returns the larger one, and NaN where either is NaN.
float larger(float a, float b) { return a >= b || std::isnan(a) ? a : b; }

}  // namespace

const MomentCode& moment_code(bool negative) {
  static const MomentCode with_sign = make_code(true), without = make_code(false);
  return negative ? with_sign : without;
}

void decode_moments(bool negative, const std::byte* codes, float scale, std::span<float> values) {
  const MomentCode& code = moment_code(negative);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = code[std::to_integer<std::size_t>(codes[i])] * scale;
}

float encode_moments(bool negative, std::span<const float> values, std::byte* codes) {
  static const MomentCode with_sign = borders_of(moment_code(true)),
                          without = borders_of(moment_code(false));
  const MomentCode& borders = negative ? with_sign : without;
  float scale = 0;
  for (const float value : values) scale = larger(scale, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float share = scale > 0 ? values[i] / scale : 0;
    codes[i] =
        std::byte(std::lower_bound(borders.begin(), borders.end() - 1, share) - borders.begin());
  }
  return scale;
}

void decode_kept_moments(bool negative, const std::byte* codes, float scale,
                         std::span<float> values) {
  decode_moments(negative, codes, scale, values);
  for (std::size_t i = 0; negative && i < values.size(); ++i) {
    if (codes[i] == std::byte(0)) values[i] = -scale;
  }
}

}  // namespace plimsoll
