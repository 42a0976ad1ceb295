// Draws tornado charts, plans by time and memory, and factors with their intervals.
#include "reports/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/markup.h"

namespace plimsoll {
namespace {

constexpr double kPlotsWidth = 552;

std::string svg_begin(std::string_view style, std::string_view title, double height,
                      std::string_view id = "") {
  return fmt::format(
      "<svg class=\"chart {}\"{} role=\"img\" viewBox=\"0 0 {} {}\" aria-label=\"{}\">\n"
      "<text class=\"title\" x=\"8\" y=\"14\">{}</text>\n",
      style, id.empty() ? "" : fmt::format(" id=\"{}\"", id), kPlotsWidth, height, escaped(title),
      escaped(title));
}

/// Maps values to positions between two ends of a drawing.
struct PlotScale {
  double least, most, from, to;
  double operator()(double value) const {
    return from + (value - least) / std::max(most - least, 1e-300) * (to - from);
  }
};

std::string upright(std::string_view style, double x, double top, double bottom) {
  return fmt::format("<line class=\"{0}\" x1=\"{1:.2f}\" x2=\"{1:.2f}\" y1=\"{2}\" y2=\"{3}\"/>",
                     style, x, top, bottom);
}

std::string tick_text(double x, double y, std::string_view text) {
  return fmt::format("<text class=\"tick\" x=\"{:.2f}\" y=\"{}\">{}</text>\n", x, y, text);
}

/// Returns round positions between two values, 0 among them where it is between.
std::vector<double> ticks_between(double least, double most, int count) {
  std::vector<double> positions;
  const std::vector<double> from_zero = ticks(most - least, count);
  const double step = from_zero.size() > 1 ? from_zero[1] : most - least;
  if (!(step > 0)) return {least};
  for (double at = std::ceil(least / step - 1e-9) * step; at <= most + 1e-9 * step; at += step)
    positions.push_back(std::abs(at) < 1e-9 * step ? 0 : at);
  return positions;
}

std::string signed_percent(double share) {
  if (share == 0) return "0";
  return fmt::format("{:+.3g} %", 100 * share);
}

std::string mark(const PlanPoint& point, double x, double y) {
  const std::string title = fmt::format("<title>{}</title>", escaped(point.why));
  if (point.style == "misfit") {
    return fmt::format("<path class=\"point misfit\" d=\"M{:.1f} {:.1f}l7 7m0-7l-7 7\">{}</path>\n",
                       x - 3.5, y - 3.5, title);
  }
  return fmt::format(
      "<circle class=\"point {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">{}</circle>\n", point.style,
      x, y, point.style == "chosen" ? 6.5 : 4.5, title);
}

/// The ends of an axis that holds all values, with a margin.
std::pair<double, double> ends_of(const std::vector<double>& values) {
  if (values.empty()) return {0, 1};
  const auto [least, most] = std::ranges::minmax(values);
  const double margin = std::max(0.08 * (most - least), 0.02 * most);
  return {std::max(0.0, least - margin), most + margin};
}

/// The front as steps: no plan with less memory is faster.
std::string front_path(const std::vector<PlanPoint>& points, const PlotScale& x,
                       const PlotScale& y) {
  std::vector<std::pair<double, double>> front;
  for (const PlanPoint& point : points) {
    if (point.style == "chosen" || point.style == "front")
      front.emplace_back(double(point.memory.count()), point.step_time.value());
  }
  if (front.size() < 2) return "";
  std::ranges::sort(front);
  std::string path = fmt::format("M{:.1f} {:.1f}", x(front[0].first), y(front[0].second));
  for (std::size_t i = 1; i < front.size(); ++i)
    path += fmt::format("H{:.1f}V{:.1f}", x(front[i].first), y(front[i].second));
  return fmt::format("<path class=\"front-line\" d=\"{}\"/>\n", path);
}

}  // namespace

std::string tornado_svg(std::string_view title, const std::vector<TornadoRow>& rows) {
  constexpr double kRow = 22, kTop = 30, kLeft = 150, kRight = 34, kBar = 14;
  double least = 0, most = 0;
  for (const TornadoRow& row : rows) {
    for (const TornadoBar& bar : row.bars) {
      least = std::min(least, bar.change);
      most = std::max(most, bar.change);
    }
  }
  const double margin = std::max(0.06 * (most - least), 0.001);
  const PlotScale x{least - margin, most + margin, kLeft, kPlotsWidth - kRight};
  const double bottom = kTop + kRow * double(rows.size());
  std::string svg = svg_begin("tornado", title, bottom + 24);
  for (const double tick : ticks_between(x.least, x.most, 6)) {
    svg += upright("grid", x(tick), kTop - 4, bottom + 2) +
           tick_text(x(tick), bottom + 16, signed_percent(tick));
  }
  double y = kTop;
  for (const TornadoRow& row : rows) {
    svg += fmt::format("<text class=\"stream\" x=\"{}\" y=\"{}\">{}</text>\n", kLeft - 8,
                       y + kBar / 2, escaped(row.label));
    for (const TornadoBar& bar : row.bars) {
      const double begin = x(std::min(bar.change, 0.0)), end = x(std::max(bar.change, 0.0));
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\"><title>{}: {}"
          "</title></rect>\n",
          bar.style, begin, y, std::max(end - begin, 0.8), kBar, escaped(row.label),
          signed_percent(bar.change));
    }
    y += kRow;
  }
  return svg + upright("axis", x(0), kTop - 4, bottom + 2) + "</svg>\n";
}

std::string plans_svg(std::string_view id, std::string_view title,
                      const std::vector<PlanPoint>& points, Bytes capacity) {
  constexpr double kHeight = 340, kTop = 48, kBottom = 34, kLeft = 62, kRight = 14, kStrip = 26;
  std::vector<double> times, bytes = {double(capacity.count())};
  bool misfits = false;
  for (const PlanPoint& point : points) {
    bytes.push_back(double(point.memory.count()));
    if (point.step_time > Seconds()) times.push_back(point.step_time.value());
    misfits = misfits || point.step_time == Seconds();
  }
  // A plan that needs many times the memory would press all others to the left.
  const double farthest = 2 * double(capacity.count());
  for (double& value : bytes) value = std::min(value, farthest);
  const auto [least_bytes, most_bytes] = ends_of(bytes);
  const auto [least_time, most_time] = ends_of(times);
  const double top = kTop + (misfits ? kStrip : 0), bottom = kHeight - kBottom;
  const PlotScale x{least_bytes, most_bytes, kLeft, kPlotsWidth - kRight};
  const PlotScale y{least_time, most_time, bottom, top};
  std::string svg = svg_begin("plans", title, kHeight, id);
  for (const double tick : ticks_between(least_time, most_time, 7)) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.2f}\" y2=\"{2:.2f}\"/>"
        "<text class=\"bytes\" x=\"{3}\" y=\"{2:.2f}\">{4}</text>\n",
        kLeft, kPlotsWidth - kRight, y(tick), kLeft - 6, to_text(Seconds(tick)));
  }
  constexpr double kGiB = 1 << 30, kMiB = 1 << 20;
  const double unit = most_bytes > 4 * kGiB ? kGiB : kMiB;
  for (const double tick : ticks_between(least_bytes / unit, most_bytes / unit, 9)) {
    svg += upright("grid", x(tick * unit), top, bottom) +
           tick_text(x(tick * unit), bottom + 14,
                     fmt::format("{:g} {}", tick, unit == kGiB ? "GiB" : "MiB"));
  }
  svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\">memory taken of a device</text>\n",
                     (kLeft + kPlotsWidth - kRight) / 2, bottom + 28);
  if (misfits) {
    svg += fmt::format("<text class=\"bytes\" x=\"{}\" y=\"{}\">no fit</text>\n", kLeft - 6,
                       kTop + kStrip / 2 - 4);
  }
  svg += upright("capacity", x(double(capacity.count())), kTop - 8, bottom) +
         fmt::format("<text class=\"capacity\" x=\"{:.1f}\" y=\"{}\">a device has {}</text>\n",
                     x(double(capacity.count())) - 4, kTop - 10, to_text(capacity)) +
         front_path(points, x, y);
  // The last points are drawn first, so that the chosen plan lies above the others.
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    const double at = x(std::min(double(point->memory.count()), farthest));
    const bool runs = point->step_time > Seconds();
    svg += mark(*point, at, runs ? y(point->step_time.value()) : kTop + kStrip / 2 - 4);
  }
  return svg + "</svg>\n";
}

std::string factors_svg(std::string_view id, std::string_view title,
                        const std::vector<FactorRow>& rows) {
  constexpr double kRow = 17, kTop = 30, kLeft = 250, kRight = 16;
  double least = 0.9, most = 1.1;
  for (const FactorRow& row : rows) {
    least = std::min(least, row.low);
    most = std::max(most, row.high);
  }
  const PlotScale x{std::log(least), std::log(most), kLeft, kPlotsWidth - kRight};
  const double bottom = kTop + kRow * double(rows.size());
  std::string svg = svg_begin(id, title, bottom + 24);
  for (const double tick : ticks_between(least, most, 5)) {
    if (tick <= 0) continue;
    svg += upright("grid", x(std::log(tick)), kTop - 4, bottom + 2) +
           tick_text(x(std::log(tick)), bottom + 16, fmt::format("{:g}", tick));
  }
  svg += upright("axis", x(0), kTop - 4, bottom + 2);
  double y = kTop + 6;
  for (const FactorRow& row : rows) {
    svg += fmt::format(
        "<text class=\"stream\" x=\"{0}\" y=\"{1}\">{2}</text>"
        "<line class=\"whisker\" x1=\"{3:.2f}\" x2=\"{4:.2f}\" y1=\"{1}\" y2=\"{1}\"/>"
        "<circle class=\"fitted\" cx=\"{5:.2f}\" cy=\"{1}\" r=\"3.5\"><title>{2}: {6:.3g} ({7:.3g} "
        "to {8:.3g})</title></circle>\n",
        kLeft - 8, y, escaped(row.label), x(std::log(row.low)), x(std::log(row.high)),
        x(std::log(row.factor)), row.factor, row.low, row.high);
    y += kRow;
  }
  return svg + "</svg>\n";
}

}  // namespace plimsoll
