// Draws the lines, intervals and axes of a sweep's chart.
#include "planner/sweep/sweep_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/sweep/sweep_output.h"
#include "reports/markup.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

constexpr double kWidth = 540, kHeight = 280;
constexpr double kLeft = 64, kRight = 14, kTop = 12, kBottom = 40;
/// The least distance of two labels of the x axis.
constexpr double kLabelWidth = 44;
constexpr int kTicks = 5;
constexpr double kShift = 4;

class Drawing {
 public:
  explicit Drawing(const SweepChart& chart) : chart_(chart) {
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) {
        xs_.insert(point.x);
        most_ = std::max(most_, point.y.high);
      }
    }
    if (chart.mark && *chart.mark < 2 * most_) most_ = std::max(most_, *chart.mark * 1.05);
  }

  std::string svg() {
    text_ = fmt::format(
        "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} over {}\">\n",
        kWidth, kHeight, escaped(chart_.title), escaped(chart_.x_name));
    add_y_axis();
    add_x_axis();
    add_mark();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) add_series(chart_.series[i], i);
    return text_ + "</svg>\n";
  }

 private:
  double x_of(double x) const {
    const double first = std::log2(*xs_.begin()), last = std::log2(*xs_.rbegin());
    const double share = last > first ? (std::log2(x) - first) / (last - first) : 0.5;
    constexpr double kInset = 18;  // no point lies on the axis
    return kLeft + kInset + share * (kWidth - kLeft - kRight - 2 * kInset);
  }

  double y_of(double y) const {
    const double share = most_ > 0 ? y / most_ : 0;
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }

  void line(const char* style, double x1, double y1, double x2, double y2) {
    text_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1,
        y1, x2, y2);
  }

  void label(const char* style, double x, double y, const std::string& words) {
    text_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x, y,
                         escaped(words));
  }

  void add_y_axis() {
    for (const double tick : ticks(most_, kTicks)) {
      line("grid", kLeft, y_of(tick), kWidth - kRight, y_of(tick));
      label("bytes", kLeft - 7, y_of(tick), short_number(tick));
    }
  }

  void add_x_axis() {
    double last = -kLabelWidth;
    for (const double x : xs_) {
      if (x_of(x) - last < kLabelWidth) continue;
      last = x_of(x);
      label("tick", last, kHeight - kBottom + 16, grouped(std::llround(x)));
    }
    label("tick", (kLeft + kWidth - kRight) / 2, kHeight - 6, chart_.x_name);
  }

  void add_mark() {
    if (!chart_.mark || *chart_.mark > most_) return;
    line("capacity", kLeft, y_of(*chart_.mark), kWidth - kRight, y_of(*chart_.mark));
    label("capacity", kWidth - kRight - 4, y_of(*chart_.mark) - 5, chart_.mark_name);
  }

  void add_series(const ChartSeries& series, std::size_t index) {
    const std::string style = series_style(index);
    // Side by side, so that intervals of points at the same place can be told apart.
    const double shift = kShift * (double(index) - double(chart_.series.size() - 1) / 2);
    const auto x_of = [&](double x) { return Drawing::x_of(x) + shift; };
    std::string path;
    for (const ChartPoint& point : series.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_of(point.x),
                          y_of(point.y.value));
      if (point.y.high > point.y.low) {
        text_ += fmt::format(
            "<line class=\"whisker {}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" "
            "y2=\"{:.1f}\"/>\n",
            style, x_of(point.x), y_of(point.y.low), x_of(point.x), y_of(point.y.high));
      }
    }
    if (series.points.size() > 1)
      text_ += fmt::format("<path class=\"run {}\" d=\"{}\"/>\n", style, path);
    for (const ChartPoint& point : series.points) {
      text_ += fmt::format(
          "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title>"
          "</circle>\n",
          style, x_of(point.x), y_of(point.y.value), escaped(point.title));
    }
  }

  const SweepChart& chart_;
  std::set<double> xs_;
  double most_ = 0;
  std::string text_;
};

}  // namespace

std::string series_style(std::size_t index) {
  return fmt::format("series-{} dashes-{}", index % kSeriesColours, index / kSeriesColours % 3);
}

std::string_view sweep_chart_style() {
  return R"css(
.series-0 { color: var(--forward); }
.series-1 { color: var(--backward); }
.series-2 { color: var(--transfer); }
.series-3 { color: var(--optimizer); }
.series-4 { color: var(--communication); }
.series-5 { color: var(--dispatch); }
.swatch[class*="series-"] { background: currentColor; }
.chart .run { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.chart .run.dashes-1 { stroke-dasharray: 7 4; }
.chart .run.dashes-2 { stroke-dasharray: 2 4; }
.chart .whisker { stroke: currentColor; stroke-width: 1.5; opacity: 0.55; }
.chart .dot { fill: currentColor; stroke: var(--raised); stroke-width: 1.5; }
.columns .wide .chart { min-width: 0; }
ul.answers { list-style: none; margin: 0; padding: 0; }
.command { overflow-wrap: anywhere; }
)css";
}

std::string sweep_chart_svg(const SweepChart& chart) { return Drawing(chart).svg(); }

}  // namespace plimsoll
