// Writes a sweep as one HTML page that needs nothing else, with the script of reports.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "planner/sweep/sweep_output.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/page.h"

namespace plimsoll {
namespace {

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
constexpr std::size_t kSeriesColours = 6;
/// Returns the classes of a series: its colour and its dashes, which report_style() knows.
std::string series_style(std::size_t index) {
  return fmt::format("series-{} dashes-{}", index % kSeriesColours, index / kSeriesColours % 3);
}

/// Returns a number of the x axis: whole, or with three digits.
std::string axis_number(double x) {
  return x == std::round(x) ? grouped(std::llround(x)) : short_number(x);
}

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

/// Returns one figure over the devices of a sweep, with a line for each series, as SVG. Its x axis
/// is logarithmic, its y axis begins at 0.
std::string sweep_chart_svg(const SweepChart& chart) { return Drawing(chart).svg(); }

std::string interval_text(const Amount& estimate) {
  return fmt::format("{} to {}", short_number(estimate.low), short_number(estimate.high));
}

/// Returns a cell of three digits that sorts and is saved by all of them.
Cell short_cell(double value) {
  return {short_number(value), "number", false, fmt::format("{}", value)};
}
Cell interval_cell(const Amount& estimate) {
  return {interval_text(estimate), "number", false,
          fmt::format("{} to {}", estimate.low, estimate.high)};
}

/// The choice over which charts are drawn: devices, unless these are the same everywhere.
struct Across {
  std::string name;
  std::function<double(const SweepPoint&)> value;
  VaryingColumns others;  ///< choices that tell series apart
};

Across across(const Sweep& sweep) {
  Across found{"devices", [](const SweepPoint& point) { return double(point.devices); },
               varying_columns(sweep)};
  const std::int64_t devices = sweep.rows.front().point.devices;
  const bool varies = std::ranges::any_of(
      sweep.rows, [&](const SweepRow& row) { return row.point.devices != devices; });
  if (varies) return found;
  if (found.others.global_batch) {
    found.others.global_batch = false;
    return {"global batch", [](const SweepPoint& point) { return double(point.global_batch); },
            found.others};
  }
  if (found.others.sequence) {
    found.others.sequence = false;
    return {"sequence", [](const SweepPoint& point) { return double(point.sequence); },
            found.others};
  }
  if (found.others.network) {
    found.others.network = false;
    return {"network in Gbit/s of each device",
            [](const SweepPoint& point) { return point.network->value() * 8 / 1e9; }, found.others};
  }
  return found;
}

using Measure = std::function<Amount(const PointPlan&)>;

/// Makes the charts of a sweep. All have the same series in the same colours.
class Charts {
 public:
  explicit Charts(const Sweep& sweep) : sweep_(sweep), across_(across(sweep)) {
    for (const SweepRow& row : sweep.rows) {
      const std::string name = series_name(row.point, across_.others);
      if (std::ranges::find(names_, name) == names_.end()) names_.push_back(name);
    }
  }

  std::string html() const {
    std::vector<LegendEntry> entries;
    std::vector<std::string> styles;
    for (std::size_t i = 0; i < names_.size(); ++i) styles.push_back(series_style(i));
    for (std::size_t i = 0; i < names_.size(); ++i) entries.push_back({styles[i], names_[i]});
    std::string html = legend(entries) + "<div class=\"columns sweep\">\n";
    if (sweep_.goal.tokens) {
      std::optional<double> deadline;
      if (sweep_.goal.deadline) deadline = sweep_.goal.deadline->value() / 86400;
      html += chart(
          "days", "Days", [](const PointPlan& p) { return p.training->days; }, deadline);
      html += chart("device-hours", "Device-hours",
                    [](const PointPlan& p) { return p.training->device_hours; });
      if (sweep_.has_prices) {
        html += chart("cost", "Cost", [](const PointPlan& p) { return *p.training->cost; });
        html += cost_against_days();
      }
    } else {
      html += chart("rate", "Tokens per second", [](const PointPlan& p) { return rate_of(p); });
    }
    html += chart("mfu", "MFU in %", [](const PointPlan& p) {
      const Amount rate = rate_of(p);
      const double factor = 100 * p.mfu / p.tokens_per_second;
      return Amount{100 * p.mfu, factor * rate.low, factor * rate.high};
    });
    html += chart("memory", "Memory taken of the fullest device in GiB", [](const PointPlan& p) {
      const double taken = double(p.taken.count()) / double(std::int64_t{1} << 30);
      return Amount{taken, taken, taken};
    });
    return html +
           fmt::format(
               "</div>\n<p class=\"note\">Bars are 90 % intervals, and the axes of {} and days are "
               "logarithmic. "
               "The pointer, or the arrow keys in a chart, choose a point and say what it is.</p>\n",
               across_.name);
  }

 private:
  static Amount rate_of(const PointPlan& plan) {
    const double per_step = plan.tokens_per_second * plan.step_time.value();
    return {plan.tokens_per_second, per_step / plan.step_time_high.value(),
            per_step / plan.step_time_low.value()};
  }

  /// Draws what there is to choose between: the faster training, or the cheaper one. The line of a
  /// series joins its points by rising days.
  std::string cost_against_days() const {
    SweepChart chart{"cost-days", "Cost against days", "days", {}, {}, ""};
    for (const std::string& name : names_) chart.series.push_back({name, {}});
    for (const SweepRow& row : sweep_.rows) {
      if (!row.plan) continue;
      const Amount &days = row.plan->training->days, &cost = *row.plan->training->cost;
      const std::string name = series_name(row.point, across_.others);
      const auto at = std::size_t(std::ranges::find(names_, name) - names_.begin());
      chart.series[at].points.push_back(
          {days.value, cost,
           fmt::format("{}, {} {}: {} days ({}), cost {} ({})", name,
                       axis_number(across_.value(row.point)), across_.name,
                       short_number(days.value), interval_text(days), short_number(cost.value),
                       interval_text(cost))});
    }
    for (ChartSeries& series : chart.series) std::ranges::sort(series.points, {}, &ChartPoint::x);
    return chart_figure(chart);
  }

  std::string chart(const std::string& id, const std::string& title, const Measure& measure,
                    std::optional<double> mark = std::nullopt) const {
    SweepChart chart{id, title, across_.name, {}, mark, "deadline"};
    for (const std::string& name : names_) chart.series.push_back({name, {}});
    for (const SweepRow& row : sweep_.rows) {
      if (!row.plan) continue;
      const std::string name = series_name(row.point, across_.others);
      const Amount y = measure(*row.plan);
      const double x = across_.value(row.point);
      std::string words =
          fmt::format("{}, {} {}: {}", name, axis_number(x), across_.name, short_number(y.value));
      if (y.high > y.low) words += fmt::format(" ({})", interval_text(y));
      const auto at = std::size_t(std::ranges::find(names_, name) - names_.begin());
      chart.series[at].points.push_back({x, y, std::move(words)});
    }
    return chart_figure(chart);
  }

  static std::string chart_figure(const SweepChart& chart) {
    return figure(chart.title, sweep_chart_svg(chart) +
                                   fmt::format("<p class=\"note details\" data-details=\"{}\" "
                                               "aria-live=\"polite\"></p>\n",
                                               chart.id));
  }

  const Sweep& sweep_;
  const Across across_;
  std::vector<std::string> names_;
};

class PageTable {
 public:
  explicit PageTable(const Sweep& sweep)
      : sweep_(sweep), varying_(varying_columns(sweep)), answer_(answer_of(sweep)) {}

  std::string html() {
    std::vector<std::vector<Cell>> rows(sweep_.rows.size());
    for (std::size_t i = 0; i < sweep_.rows.size(); ++i) {
      cells_ = &rows[i];
      add_row(i);
    }
    return table("", columns_, rows);
  }

 private:
  /// Adds a cell, and the column with the first row.
  void add(std::string_view title, Cell cell, std::string_view unit = "") {
    if (cells_->size() == columns_.size()) columns_.push_back({title, cell.style, unit});
    cells_->push_back(std::move(cell));
  }

  void add_row(std::size_t index) {
    const SweepRow& row = sweep_.rows[index];
    add("cluster", heading_cell(row.point.cluster));
    if (varying_.framework) add("framework", text_cell(row.point.framework));
    add("devices", exact_cell(row.point.devices));
    if (varying_.global_batch) add("batch", exact_cell(row.point.global_batch));
    if (varying_.sequence) add("sequence", exact_cell(row.point.sequence));
    if (varying_.network) add("network", number_cell(network_text(*row.point.network)));
    const auto of_plan = [&](std::string_view title, std::string_view unit, const auto& cell_of) {
      add(title, row.plan ? cell_of(*row.plan) : number_cell(""), unit);
    };
    of_plan("step", "s", [](const PointPlan& p) { return exact_cell(p.step_time); });
    if (sweep_.goal.tokens) add_training(of_plan);
    of_plan("tokens/s", "", [](const PointPlan& p) { return short_cell(p.tokens_per_second); });
    of_plan("MFU", "", [](const PointPlan& p) {
      return Cell{fmt::format("{:.1f} %", 100 * p.mfu), "number", false, fmt::format("{}", p.mfu)};
    });
    of_plan("memory", "bytes", [](const PointPlan& p) { return exact_cell(p.taken); });
    of_plan("of", "bytes", [](const PointPlan& p) { return exact_cell(p.capacity); });
    add("answers", text_cell(marks_of(index)));
    add("strategy, or why there is none", strategy_cell(row));
  }

  template <class OfPlan>
  void add_training(const OfPlan& of_plan) {
    of_plan("days", "", [](const PointPlan& p) { return short_cell(p.training->days.value); });
    of_plan("days, 90 %", "", [](const PointPlan& p) { return interval_cell(p.training->days); });
    if (sweep_.goal.deadline) {
      of_plan("in time", "", [&](const PointPlan& p) {
        return number_cell(to_text(deadline_of(*p.training, *sweep_.goal.deadline)));
      });
    }
    of_plan("device-hours", "",
            [](const PointPlan& p) { return short_cell(p.training->device_hours.value); });
    if (!sweep_.has_prices) return;
    of_plan("cost", "", [](const PointPlan& p) { return short_cell(p.training->cost->value); });
    of_plan("cost, 90 %", "", [](const PointPlan& p) { return interval_cell(*p.training->cost); });
  }

  static Cell strategy_cell(const SweepRow& row) {
    if (!row.plan) return {escaped(row.reason), "value", false};
    const std::string doubt = row.plan->proven ? "" : "not proven: ";
    return {escaped(doubt + row.plan->layout), "value", false};
  }

  std::string marks_of(std::size_t index) const {
    const bool fastest = answer_.fastest == index, cheapest = answer_.cheapest == index;
    const std::string least =
        sweep_.has_prices && sweep_.goal.tokens ? "least cost" : "least hours";
    if (fastest && cheapest) return "fastest, " + least;
    return fastest ? "fastest" : cheapest ? least : "";
  }

  const Sweep& sweep_;
  const VaryingColumns varying_;
  const SweepAnswer answer_;
  std::vector<Column> columns_;
  std::vector<Cell>* cells_ = nullptr;
};

/// Says once for each cluster and framework what their costs rest on.
std::string sources_html(const Sweep& sweep) {
  std::vector<std::vector<Cell>> rows;
  std::map<std::string, bool> seen;
  for (const SweepRow& row : sweep.rows) {
    if (!row.plan || !seen.try_emplace(row.point.cluster + "\n" + row.point.framework).second)
      continue;
    rows.push_back({heading_cell(row.point.cluster), text_cell(row.point.framework),
                    text_cell(row.plan->costs)});
  }
  return table("", {{"cluster", ""}, {"framework", ""}, {"costs rest on", ""}}, rows);
}

}  // namespace

std::string sweep_page(const Sweep& sweep) {
  std::string body = fmt::format(
      "<a class=\"skip\" href=\"#points\">Skip to the points</a>\n"
      "<header>\n<p class=\"eyebrow\">Sweep</p>\n<h1>{}</h1>\n<p>{}</p>\n",
      escaped(sweep.job), escaped(sweep_headline(sweep)));
  body += "<div class=\"verdict open\"><ul class=\"answers\">\n";
  if (!sweep.rows.empty()) {
    for (const std::string& line : answer_lines(sweep))
      body += fmt::format("<li>{}</li>\n", escaped(line));
  }
  if (sweep.left > 0) body += fmt::format("<li>{} points were left out</li>\n", sweep.left);
  body += "</ul></div>\n</header>\n<main>\n";
  if (!sweep.rows.empty()) {
    body += section("points", "Points", Charts(sweep).html() + PageTable(sweep).html());
    body += section("sources", "Sources", sources_html(sweep));
  }
  body += fmt::format(
      "</main>\n<footer><p>Every point is the best plan that <code>planner plan</code> finds "
      "there. Days are steps alone: no restarts, no evaluation, no checkpoints.</p>\n"
      "<p class=\"command\"><code>{}</code></p></footer>\n",
      escaped(printable(sweep.command, sweep.command.size())));
  return page_html(fmt::format("Sweep of {} - Plimsoll", sweep.job), body);
}

}  // namespace plimsoll
