#include "planner/step_interval.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "models/presets.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kTimeBases> kBases = {"kernels", "typical", "fit"};

std::array<SourceSpread, kTimeBases> read_spreads() {
  const auto text = find_preset(spread_presets(), "step-time");
  INVARIANT(text, "the preset of spreads");
  const std::string file = "step-time.json";
  const Json json = parse_json(*text, file);
  JsonObject steps = JsonObject(json, file).object("step_time");
  std::array<SourceSpread, kTimeBases> spreads;
  for (std::size_t i = 0; i < kTimeBases; ++i) {
    JsonObject of = steps.object(kBases[i]);
    SourceSpread& spread = spreads[i];
    spread.centre = of.number("centre", -1, 1);
    spread.half_width = of.number("half_width", 0, 2);
    spread.mean_error = of.number("mean_error", 0, 10);
    spread.documents = of.integer("documents", 1, 1 << 20);
    spread.runs = of.integer("runs", 1, 1 << 20);
    of.finish();
  }
  return spreads;
}

}  // namespace

std::string_view to_text(TimeBasis basis) { return kBases[std::size_t(basis)]; }

TimeBasis basis_of(const std::optional<FittedCalibration>& fitted) {
  if (!fitted) return TimeBasis::kernels;
  return fitted->runs == 0 ? TimeBasis::typical : TimeBasis::fit;
}

double StepInterval::half_width() const { return std::sqrt(high / low) - 1; }

StepInterval around(double logarithm) { return {std::exp(-logarithm), std::exp(logarithm)}; }

const SourceSpread& source_spread(TimeBasis basis) {
  static const std::array<SourceSpread, kTimeBases> spreads = read_spreads();
  return spreads[std::size_t(basis)];
}

StepInterval unseen_source(TimeBasis basis, double own) {
  const SourceSpread& spread = source_spread(basis);
  const double half = std::hypot(spread.half_width, own);
  return {std::exp(spread.centre - half), std::exp(spread.centre + half)};
}

}  // namespace plimsoll
