// Plots: small charts with values on axes. Tables beside them have the numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// A bar of a tornado chart: by how much of a step's time something changes it.
struct TornadoBar {
  std::string_view style;
  double change = 0;  ///< share of the step's time; negative: shorter
};
struct TornadoRow {
  std::string label;
  std::vector<TornadoBar> bars;
};
/// Returns plain SVG. Rows come in the given order, each with its bars on one line.
std::string tornado_svg(std::string_view title, const std::vector<TornadoRow>& rows);

/// A plan in a plot of step time and memory.
struct PlanPoint {
  std::string_view style;  ///< class: "chosen", "front", "loser", "neighbour", "misfit"
  Seconds step_time;       ///< 0: it has none, since it does not fit
  Bytes memory;
  std::string why;  ///< what a reader learns of it
};
/// Returns plain SVG: memory to the right, step time up, and a strip above for plans without a step
/// time. A dashed line is the device's memory. The points of style "chosen" and "front" are joined.
std::string plans_svg(std::string_view id, std::string_view title,
                      const std::vector<PlanPoint>& points, Bytes capacity);

/// A value with its 90 % interval, as a factor.
struct FactorRow {
  std::string label;
  double factor = 1, low = 1, high = 1;
};
/// Returns plain SVG: a row for each factor, on a logarithmic axis with a line at 1.
std::string factors_svg(std::string_view id, std::string_view title,
                        const std::vector<FactorRow>& rows);

}  // namespace plimsoll
