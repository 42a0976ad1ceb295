// The angles are computed in float64, once for each kernel.
#include "runtime/rotary_angles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plimsoll {

namespace {

/// Returns the column whose angle makes this number of turns in the original sequence.
double column_of(const RotaryParams& params, std::int64_t width, double turns) {
  return double(width) / 2 *
         std::log(double(params.scale.original) / (turns * 2 * std::numbers::pi)) /
         std::log(params.base);
}

/// The share of each angle that is not divided.
std::vector<double> kept_shares(const RotaryParams& params, std::int64_t width,
                                const std::vector<double>& frequencies) {
  const RotaryScale& scale = params.scale;
  std::vector<double> shares;
  if (scale.kind == RotaryScaling::llama3) {
    for (const double frequency : frequencies) {
      const double turns = double(scale.original) * frequency / (2 * std::numbers::pi);
      const double between = scale.high - scale.low;
      shares.push_back(between > 0 ? (turns - scale.low) / between : turns < scale.low ? 0 : 1);
    }
  } else {
    double first = column_of(params, width, scale.high), last = column_of(params, width, scale.low);
    if (scale.whole_columns) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0), last = std::min(last, double(width - 1));
    if (first == last) last += 0.001;  // one step
    for (std::size_t i = 0; i < frequencies.size(); ++i)
      shares.push_back(1 - (double(i) - first) / (last - first));
  }
  for (double& share : shares) share = std::clamp(share, 0.0, 1.0);
  return shares;
}

}  // namespace

std::vector<double> rotary_frequencies(const RotaryParams& params, std::int64_t width) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < width / 2; ++i)
    frequencies.push_back(std::pow(params.base, -2.0 * double(i) / double(width)));
  if (params.scale.kind == RotaryScaling::none) return frequencies;
  if (params.scale.kind == RotaryScaling::linear) {
    for (double& frequency : frequencies) frequency /= params.scale.factor;
    return frequencies;
  }
  const std::vector<double> shares = kept_shares(params, width, frequencies);
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] *= shares[i] + (1 - shares[i]) / params.scale.factor;
  return frequencies;
}

RotaryAngles rotary_angles(const RotaryParams& params, const SequencePart& part, std::int64_t width,
                           double direction) {
  std::vector<double> frequencies;
  if (params.rotated > 0) frequencies = rotary_frequencies(params, width);
  const QueryGrowth& growth = params.growth;
  const double amplitude = params.scale.amplitude;
  RotaryAngles angles;
  for (std::int64_t token = 0; token < part.tokens; ++token) {
    const std::int64_t position = part.position(token);
    if (growth.span > 0) {
      const auto spans = double((position + growth.ahead) / growth.span);
      angles.growth.push_back(float(1 + growth.factor * std::log1p(spans)));
    }
    for (const double frequency : frequencies) {
      const double angle = double(position) * frequency;
      angles.cosine.push_back(float(amplitude * std::cos(angle)));
      angles.sine.push_back(float(amplitude * direction * std::sin(angle)));
    }
  }
  return angles;
}

}  // namespace plimsoll
