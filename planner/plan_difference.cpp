#include "planner/plan_difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "models/presets.h"

namespace plimsoll {
namespace {

/// Parts of a step; forward and backward are the rest.
constexpr std::array kParts = {&Breakdown::recompute, &Breakdown::optimizer,
                               &Breakdown::exposed_communication, &Breakdown::bubble,
                               &Breakdown::dispatch};

/// Half widths of logarithms.
struct DifferenceSpread {
  double any = 0, other_shapes = 0;
  double of_shares = 0;  ///< of shares that are 1 apart
};

std::array<DifferenceSpread, kTimeBases> read_spreads() {
  const auto text = find_preset(spread_presets(), "step-time");
  INVARIANT(text, "the preset of spreads");
  const std::string file = "step-time.json";
  const Json json = parse_json(*text, file);
  JsonObject differences = JsonObject(json, file).object("difference");
  std::array<DifferenceSpread, kTimeBases> spreads;
  for (std::size_t i = 0; i < kTimeBases; ++i) {
    JsonObject of = differences.object(to_text(TimeBasis(i)));
    spreads[i].any = of.number("any", 0, 2);
    spreads[i].other_shapes = of.number("other_shapes", 0, 2);
    spreads[i].of_shares = of.number("shares", 0, 10);
  }
  return spreads;
}

bool same(const PlanTime& a, const PlanTime& b) {
  if (a.step_time != b.step_time || a.shape != b.shape) return false;
  return std::all_of(kParts.begin(), kParts.end(),
                     [&](auto part) { return a.breakdown.*part == b.breakdown.*part; });
}

}  // namespace

double difference_half_width(TimeBasis basis, const PlanTime& a, const PlanTime& b) {
  static const std::array<DifferenceSpread, kTimeBases> spreads = read_spreads();
  if (same(a, b)) return 0;
  const DifferenceSpread& spread = spreads[std::size_t(basis)];
  double square = spread.any * spread.any;
  if (a.shape != b.shape) square += spread.other_shapes * spread.other_shapes;
  for (const auto part : kParts) {
    const double apart = a.breakdown.*part / a.step_time - b.breakdown.*part / b.step_time;
    square += spread.of_shares * apart * spread.of_shares * apart;
  }
  return std::sqrt(square);
}

bool tied(TimeBasis basis, const PlanTime& a, const PlanTime& b) {
  return std::abs(std::log(a.step_time / b.step_time)) <= difference_half_width(basis, a, b);
}

}  // namespace plimsoll
