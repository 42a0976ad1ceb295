// Sweep charts: one figure over the devices of a sweep, with a line for each series, as SVG.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/sweep/sweep.h"

namespace plimsoll {

struct ChartPoint {
  double x = 0;       ///< above 0
  Amount y;           ///< its interval is drawn where it is one
  std::string title;  ///< what a pointer over it shows
};
struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  ///< by rising x
};

struct SweepChart {
  std::string id;      ///< of the element
  std::string title;   ///< "Days"
  std::string x_name;  ///< "devices"
  std::vector<ChartSeries> series;
  std::optional<double> mark;  ///< a horizontal line, such as the deadline
  std::string mark_name;
};

/// The number of colours. Later series begin again with the first colour, dashed otherwise.
inline constexpr std::size_t kSeriesColours = 6;
/// Returns the classes of a series: its colour and its dashes, which report_style() knows.
std::string series_style(std::size_t index);

/// Returns a number of the x axis: whole, or with three digits.
std::string axis_number(double x);

/// Returns the chart. Its x axis is logarithmic, its y axis begins at 0.
std::string sweep_chart_svg(const SweepChart& chart);

}  // namespace plimsoll
