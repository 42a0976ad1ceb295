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
constexpr double kLeft = 72, kRight = 14, kTop = 12, kBottom = 40;
/// The least distance of two labels of the x axis.
constexpr double kLabelWidth = 44;
constexpr int kTicks = 5;
constexpr double kShift = 4;
constexpr double kDot = 4;         // radius
constexpr double kMarkWidth = 70;  // of the mark's name

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
        "<svg class=\"chart\" id=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" "
        "aria-label=\"{} over {}\">\n",
        chart_.id, kWidth, kHeight, escaped(chart_.title), escaped(chart_.x_name));
    add_y_axis();
    add_x_axis();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) add_series(chart_.series[i], i);
    add_mark();
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
      label("tick", last, kHeight - kBottom + 16, axis_number(x));
    }
    label("tick", (kLeft + kWidth - kRight) / 2, kHeight - 6, chart_.x_name);
  }

  /// Draws the mark, with its name where most room is: above or below it, anywhere along it.
  void add_mark() {
    if (!chart_.mark || *chart_.mark > most_) return;
    const double y = y_of(*chart_.mark);
    line("capacity", kLeft, y, kWidth - kRight, y);
    constexpr double kRise = 5, kDrop = 14, kHalfText = 4;  // of a base line, from the mark
    double most_room = -1, at_x = 0, at_y = 0;
    for (double x = kWidth - kRight - 4; x - kMarkWidth > kLeft; x -= kMarkWidth / 2) {
      for (const double base : {y - kRise, y + kDrop}) {
        const bool inside = base - 2 * kHalfText > kTop && base < kHeight - kBottom;
        const double room = inside ? room_at(x - kMarkWidth, x, base - kHalfText) : -1;
        if (room > most_room) most_room = room, at_x = x, at_y = base;
      }
    }
    if (most_room >= 0) label("capacity", at_x, at_y, chart_.mark_name);
  }

  /// Returns how far the lines and intervals of all series stay from `y` between `left` and
  /// `right`; enough is enough.
  double room_at(double left, double right, double y) const {
    constexpr double kEnough = 16;
    double room = kEnough;
    const auto meet = [&](double low, double high) {
      room = std::min(room, std::max({low - y, y - high, 0.0}));
    };
    for (std::size_t s = 0; s < chart_.series.size(); ++s) {
      const auto& points = chart_.series[s].points;
      for (std::size_t i = 0; i < points.size(); ++i) {
        const double x = shifted_x(points[i].x, s);
        if (x > left - kDot && x < right + kDot) {
          meet(y_of(points[i].y.high), y_of(points[i].y.low));
          meet(y_of(points[i].y.value) - kDot, y_of(points[i].y.value) + kDot);
        }
        if (i == 0) continue;
        const double before = shifted_x(points[i - 1].x, s);
        if (before >= right || x <= left) continue;
        const double from = y_of(points[i - 1].y.value), to = y_of(points[i].y.value);
        const auto on_line = [&](double at) {
          return from + (to - from) * (at - before) / (x - before);
        };
        const double a = on_line(std::max(left, before)), b = on_line(std::min(right, x));
        meet(std::min(a, b), std::max(a, b));
      }
    }
    return room;
  }

  /// Series stand side by side, so that intervals of points at the same place can be told apart.
  double shifted_x(double x, std::size_t index) const {
    return x_of(x) + kShift * (double(index) - double(chart_.series.size() - 1) / 2);
  }

  void add_series(const ChartSeries& series, std::size_t index) {
    const std::string style = series_style(index);
    const auto x_of = [&](double x) { return shifted_x(x, index); };
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
          "<circle class=\"dot point {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title>"
          "</circle>\n",
          style, x_of(point.x), y_of(point.y.value), kDot, escaped(point.title));
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

std::string axis_number(double x) {
  return x == std::round(x) ? grouped(std::llround(x)) : short_number(x);
}

std::string sweep_chart_svg(const SweepChart& chart) { return Drawing(chart).svg(); }

}  // namespace plimsoll
