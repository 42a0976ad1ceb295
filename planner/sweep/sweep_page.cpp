// Writes a sweep as one HTML page that needs nothing else, with the script of reports.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "planner/sweep/sweep_chart.h"
#include "planner/sweep/sweep_output.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/page.h"

namespace plimsoll {
namespace {

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
