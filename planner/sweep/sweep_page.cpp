// Writes a sweep as one HTML page that needs nothing else.
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

/// The choice over which charts are drawn: devices, unless these are the same everywhere.
struct Across {
  std::string name;
  std::int64_t SweepPoint::*value = &SweepPoint::devices;
  VaryingColumns others;  ///< choices that tell series apart
};

Across across(const Sweep& sweep) {
  Across found{"devices", &SweepPoint::devices, varying_columns(sweep)};
  const std::int64_t devices = sweep.rows.front().point.devices;
  const bool varies = std::ranges::any_of(
      sweep.rows, [&](const SweepRow& row) { return row.point.devices != devices; });
  if (varies) return found;
  if (found.others.global_batch) {
    found.others.global_batch = false;
    return {"global batch", &SweepPoint::global_batch, found.others};
  }
  if (found.others.sequence) {
    found.others.sequence = false;
    return {"sequence", &SweepPoint::sequence, found.others};
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
    std::string html = legend(entries) + "<div class=\"columns\">\n";
    if (sweep_.goal.tokens) {
      std::optional<double> deadline;
      if (sweep_.goal.deadline) deadline = sweep_.goal.deadline->value() / 86400;
      html += chart(
          "Days", [](const PointPlan& p) { return p.training->days; }, deadline);
      html += chart("Device-hours", [](const PointPlan& p) { return p.training->device_hours; });
      if (sweep_.has_prices)
        html += chart("Cost", [](const PointPlan& p) { return *p.training->cost; });
    } else {
      html += chart("Tokens per second", [](const PointPlan& p) { return rate_of(p); });
    }
    html += chart("MFU in %", [](const PointPlan& p) {
      const Amount rate = rate_of(p);
      const double factor = 100 * p.mfu / p.tokens_per_second;
      return Amount{100 * p.mfu, factor * rate.low, factor * rate.high};
    });
    html += chart("Memory taken of the fullest device in GiB", [](const PointPlan& p) {
      const double taken = double(p.taken.count()) / double(std::int64_t{1} << 30);
      return Amount{taken, taken, taken};
    });
    return html +
           "</div>\n<p class=\"note\">Bars are 90 % intervals. Devices are on a "
           "logarithmic axis.</p>\n";
  }

 private:
  static Amount rate_of(const PointPlan& plan) {
    const double per_step = plan.tokens_per_second * plan.step_time.value();
    return {plan.tokens_per_second, per_step / plan.step_time_high.value(),
            per_step / plan.step_time_low.value()};
  }

  std::string chart(const std::string& title, const Measure& measure,
                    std::optional<double> mark = std::nullopt) const {
    SweepChart chart{title, across_.name, {}, mark, "deadline"};
    for (const std::string& name : names_) chart.series.push_back({name, {}});
    for (const SweepRow& row : sweep_.rows) {
      if (!row.plan) continue;
      const std::string name = series_name(row.point, across_.others);
      const Amount y = measure(*row.plan);
      const std::int64_t x = row.point.*across_.value;
      std::string words =
          fmt::format("{}, {} {}: {}", name, grouped(x), across_.name, short_number(y.value));
      if (y.high > y.low) words += fmt::format(" ({})", interval_text(y));
      const auto at = std::size_t(std::ranges::find(names_, name) - names_.begin());
      chart.series[at].points.push_back({double(x), y, std::move(words)});
    }
    return figure(title, sweep_chart_svg(chart));
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
  void add(std::string_view title, Cell cell) {
    if (cells_->size() == columns_.size()) columns_.push_back({title, cell.style});
    cells_->push_back(std::move(cell));
  }
  void number(std::string_view title, const std::string& text) { add(title, number_cell(text)); }

  void add_row(std::size_t index) {
    const SweepRow& row = sweep_.rows[index];
    add("cluster", heading_cell(row.point.cluster));
    if (varying_.framework) add("framework", text_cell(row.point.framework));
    number("devices", grouped(row.point.devices));
    if (varying_.global_batch) number("batch", grouped(row.point.global_batch));
    if (varying_.sequence) number("sequence", grouped(row.point.sequence));
    const auto of_plan = [&](std::string_view title, const auto& text_of) {
      number(title, row.plan ? text_of(*row.plan) : "-");
    };
    of_plan("step", [](const PointPlan& p) { return to_text(p.step_time); });
    if (sweep_.goal.tokens) add_training(of_plan);
    of_plan("tokens/s", [](const PointPlan& p) { return short_number(p.tokens_per_second); });
    of_plan("MFU", [](const PointPlan& p) { return fmt::format("{:.1f} %", 100 * p.mfu); });
    of_plan("memory", [](const PointPlan& p) { return to_text(p.taken); });
    of_plan("of", [](const PointPlan& p) { return to_text(p.capacity); });
    add("strategy, or why there is none", strategy_cell(row));
    add("", text_cell(marks_of(index)));
  }

  template <class OfPlan>
  void add_training(const OfPlan& of_plan) {
    of_plan("days", [](const PointPlan& p) { return short_number(p.training->days.value); });
    of_plan("90 % interval", [](const PointPlan& p) { return interval_text(p.training->days); });
    if (sweep_.goal.deadline) {
      of_plan("in time", [&](const PointPlan& p) {
        return std::string(to_text(deadline_of(*p.training, *sweep_.goal.deadline)));
      });
    }
    of_plan("device-hours",
            [](const PointPlan& p) { return short_number(p.training->device_hours.value); });
    if (!sweep_.has_prices) return;
    of_plan("cost", [](const PointPlan& p) { return short_number(p.training->cost->value); });
    of_plan("90 % interval", [](const PointPlan& p) { return interval_text(*p.training->cost); });
  }

  static Cell strategy_cell(const SweepRow& row) {
    if (!row.plan) return {escaped(row.reason), "value", false};
    const std::string doubt = row.plan->proven ? "" : "not proven: ";
    return {escaped(doubt + short_strategy(row.plan->strategy)), "key", false};
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
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>Sweep of {} - Plimsoll</title>\n<style>\n",
      escaped(sweep.job));
  html += report_style();
  html += sweep_chart_style();
  html += fmt::format(
      "</style>\n</head>\n<body>\n<header>\n<p class=\"eyebrow\">Sweep</p>\n<h1>{}</h1>\n"
      "<p>{}</p>\n",
      escaped(sweep.job), escaped(sweep_headline(sweep)));
  html += "<div class=\"verdict open\"><ul class=\"answers\">\n";
  if (!sweep.rows.empty()) {
    for (const std::string& line : answer_lines(sweep))
      html += fmt::format("<li>{}</li>\n", escaped(line));
  }
  if (sweep.left > 0) html += fmt::format("<li>{} points were left out</li>\n", sweep.left);
  html += "</ul></div>\n</header>\n<main>\n";
  if (!sweep.rows.empty()) {
    html += section("charts", "Across the points", Charts(sweep).html());
    html += section("points", "Points", PageTable(sweep).html());
    html += section("sources", "Sources", sources_html(sweep));
  }
  html += fmt::format(
      "</main>\n<footer><p>Every point is the best plan that <code>planner plan</code> finds "
      "there. Days are steps alone: no restarts, no evaluation, no checkpoints.</p>\n"
      "<p class=\"command\"><code>{}</code></p></footer>\n</body>\n</html>\n",
      escaped(sweep.command));
  return html;
}

}  // namespace plimsoll
