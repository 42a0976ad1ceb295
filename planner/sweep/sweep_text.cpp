// Writes a sweep as a table for a terminal, with the answers in sentences.
#include <fmt/format.h>

#include <algorithm>

#include "planner/sweep/sweep_output.h"
#include "reports/numbers.h"
#include "reports/text_lines.h"

namespace plimsoll {
namespace {

constexpr const char* kNothing = "-";

/// Returns the columns that fit side by side on a terminal.
std::vector<TextColumn> fitting(std::vector<TextColumn> columns) {
  while (width_of(columns) > kTerminalColumns) {
    const auto least = std::ranges::max_element(columns, {}, &TextColumn::rank);
    if (least->rank == 0) break;
    columns.erase(least);
  }
  return columns;
}

std::string range_text(const Amount& estimate) {
  return fmt::format("{} ({} to {})", short_number(estimate.value), short_number(estimate.low),
                     short_number(estimate.high));
}

/// Returns what kept a row from being proven.
std::string doubt_of(const PointPlan& plan) {
  if (plan.proven) return "";
  return plan.gap > 0 ? fmt::format("within {:.1f} % of the best", 100 * plan.gap) : "not proven";
}

/// Returns the degrees of a strategy: "TP 4, PP 8 x 12, DP 16".
std::string short_layout(const Strategy& s) {
  std::string text = fmt::format("TP {}, PP {}", s.mp, s.pp);
  if (s.pipeline.virtual_stages > 1) text += fmt::format(" x {}", s.pipeline.virtual_stages);
  if (s.cp > 1) text += fmt::format(", CP {}", s.cp);
  if (s.ep > 1) text += fmt::format(", EP {}", s.ep);
  return text + fmt::format(", DP {}", s.dp * s.sharding_degree);
}

class Table {
 public:
  explicit Table(const Sweep& sweep) : sweep_(sweep), varying_(varying_columns(sweep)) {}

  /// Returns the table that a terminal has room for.
  std::string brief() {
    add_points();
    add_of_plan("step", [](const PointPlan& plan) { return to_text(plan.step_time); });
    add("tokens/s/device", false, [](const SweepRow& row) {
      return row.plan ? short_count(row.plan->tokens_per_second / double(row.point.devices))
                      : std::string(kNothing);
    });
    add_of_plan("MFU",
                [](const PointPlan& plan) { return fmt::format("{:.1f} %", 100 * plan.mfu); });
    columns_.back().rank = 1;
    if (sweep_.goal.tokens) add_training(true);
    add_of_plan("memory", [](const PointPlan& plan) { return to_text(plan.taken); });
    columns_.back().rank = 3;
    add("layout", true, [](const SweepRow& row) {
      return row.plan ? short_layout(row.plan->strategy) : "none, see below";
    });
    columns_.back().rank = 4;
    return table_text(fitting(std::move(columns_)));
  }

  std::string text() {
    add_points();
    add_of_plan("step", [](const PointPlan& plan) { return to_text(plan.step_time); });
    if (sweep_.goal.tokens) add_training(false);
    add_of_plan("tokens/s",
                [](const PointPlan& plan) { return short_number(plan.tokens_per_second); });
    add_of_plan("MFU",
                [](const PointPlan& plan) { return fmt::format("{:.1f} %", 100 * plan.mfu); });
    add_of_plan("memory", [](const PointPlan& plan) {
      return fmt::format("{} of {}", to_text(plan.taken), to_text(plan.capacity));
    });
    add("strategy, or why there is none", true, [](const SweepRow& row) {
      if (!row.plan) return row.reason;
      const std::string doubt = doubt_of(*row.plan);
      return (doubt.empty() ? "" : doubt + ": ") + row.plan->layout;
    });
    return table_text(columns_);
  }

 private:
  void add_points() {
    add("cluster", true, [](const SweepRow& row) { return row.point.cluster; });
    if (varying_.framework)
      add("framework", true, [](const SweepRow& row) { return row.point.framework; });
    add("devices", false, [](const SweepRow& row) { return grouped(row.point.devices); });
    if (varying_.global_batch)
      add("batch", false, [](const SweepRow& row) { return grouped(row.point.global_batch); });
    if (varying_.sequence)
      add("sequence", false, [](const SweepRow& row) { return grouped(row.point.sequence); });
    if (varying_.network)
      add("network", false, [](const SweepRow& row) { return network_text(*row.point.network); });
  }

  template <class CellOf>
  void add(const char* title, bool is_text, CellOf cell_of) {
    TextColumn column{title, is_text};
    for (const SweepRow& row : sweep_.rows) column.cells.push_back(cell_of(row));
    columns_.push_back(std::move(column));
  }

  template <class TextOf>
  void add_of_plan(const char* title, TextOf text_of) {
    add(title, false,
        [&](const SweepRow& row) { return row.plan ? text_of(*row.plan) : std::string(kNothing); });
  }

  void add_training(bool brief) {
    add_of_plan("days (90 %)",
                [](const PointPlan& plan) { return range_text(plan.training->days); });
    if (sweep_.goal.deadline) {
      add_of_plan("in time", [&](const PointPlan& plan) {
        return std::string(to_text(deadline_of(*plan.training, *sweep_.goal.deadline)));
      });
    }
    add_of_plan("device-hours", [](const PointPlan& plan) {
      return short_number(plan.training->device_hours.value);
    });
    columns_.back().rank = 2;
    if (sweep_.has_prices) {
      add_of_plan(brief ? "cost" : "cost (90 %)", [&](const PointPlan& plan) {
        const Amount& cost = *plan.training->cost;
        return brief ? short_number(cost.value) : range_text(cost);
      });
    }
  }

  const Sweep& sweep_;
  const VaryingColumns varying_;
  std::vector<TextColumn> columns_;
};

std::string days_text(double days) { return short_number(days) + " days"; }

std::string point_text(const Sweep& sweep, const SweepRow& row) {
  const PointPlan& plan = *row.plan;
  std::string text = fmt::format(
      "{} device{} of {} ({})", grouped(row.point.devices), row.point.devices == 1 ? "" : "s",
      series_name(row.point, varying_columns(sweep)), short_layout(plan.strategy));
  if (!plan.training)
    return text + fmt::format(", {} tokens/s", short_number(plan.tokens_per_second));
  const Amount& days = plan.training->days;
  text +=
      fmt::format(": {} ({} to {}), {} device-hours", days_text(days.value), short_number(days.low),
                  short_number(days.high), short_number(plan.training->device_hours.value));
  if (sweep.has_prices) text += ", cost " + range_text(*plan.training->cost);
  return text;
}

bool is_priced(const Sweep& sweep) { return sweep.has_prices && sweep.goal.tokens; }

}  // namespace

VaryingColumns varying_columns(const Sweep& sweep) {
  VaryingColumns varying;
  for (const SweepRow& row : sweep.rows) {
    const SweepPoint& first = sweep.rows.front().point;
    varying.framework |= row.point.framework != first.framework;
    varying.global_batch |= row.point.global_batch != first.global_batch;
    varying.sequence |= row.point.sequence != first.sequence;
    varying.network |= row.point.network != first.network;
  }
  return varying;
}

std::string series_name(const SweepPoint& point, const VaryingColumns& varying) {
  std::string name = point.cluster;
  if (varying.framework) name += ", " + point.framework;
  if (varying.global_batch) name += fmt::format(", batch {}", grouped(point.global_batch));
  if (varying.sequence) name += fmt::format(", sequence {}", grouped(point.sequence));
  if (varying.network && point.network) name += ", " + network_text(*point.network);
  return name;
}

std::string network_text(BytesPerSecond network) {
  return fmt::format("{:.6g} Gbit/s", network.value() * 8 / 1e9);
}

std::string sweep_headline(const Sweep& sweep) {
  return points_headline(sweep) + fmt::format("; reserve {} per device", to_text(sweep.reserve));
}

std::string points_headline(const Sweep& sweep) {
  std::string text = sweep.job;
  if (!sweep.rows.empty()) {
    const VaryingColumns varying = varying_columns(sweep);
    const SweepPoint& first = sweep.rows.front().point;
    if (!varying.framework) text += "; framework " + first.framework;
    if (!varying.global_batch) text += fmt::format("; batch {}", grouped(first.global_batch));
    if (!varying.sequence) text += fmt::format("; sequence {}", grouped(first.sequence));
    if (!varying.network && first.network)
      text += fmt::format("; network {} per device", network_text(*first.network));
  }
  if (sweep.goal.tokens) text += fmt::format("; {} tokens", short_number(*sweep.goal.tokens));
  if (sweep.goal.deadline)
    text += fmt::format("; deadline {}", days_text(sweep.goal.deadline->value() / 86400));
  return text;
}

std::vector<std::string> answer_lines(const Sweep& sweep) {
  const SweepAnswer answer = answer_of(sweep);
  std::vector<std::string> lines;
  if (!answer.fastest) return {"no point has a plan"};
  const std::string fastest = point_text(sweep, sweep.rows[*answer.fastest]);
  const bool bound = sweep.goal.deadline && sweep.goal.tokens;
  const std::string within =
      bound ? " within " + days_text(sweep.goal.deadline->value() / 86400) : "";
  if (!answer.cheapest) {
    lines.push_back("fastest: " + fastest);
    lines.push_back(fmt::format("no point is done{}", within));
    return lines;
  }
  const SweepRow& cheapest = sweep.rows[*answer.cheapest];
  const bool both = answer.cheapest == answer.fastest;
  if (!both) lines.push_back("fastest: " + fastest);
  std::string line = fmt::format("{}least {}{}: {}", both ? "fastest and " : "",
                                 is_priced(sweep) ? "cost" : "device-hours", within,
                                 both ? fastest : point_text(sweep, cheapest));
  if (bound && deadline_of(*cheapest.plan->training, *sweep.goal.deadline) == Deadline::open)
    line += "; the deadline is within its interval";
  lines.push_back(std::move(line));
  if (answer.not_told_apart > 0) {
    lines.push_back(fmt::format("{} other point{}{} may {}", answer.not_told_apart,
                                answer.not_told_apart == 1 ? "" : "s", within,
                                is_priced(sweep) ? "cost as little" : "take as few device-hours"));
  }
  return lines;
}

std::string sweep_brief(const Sweep& sweep) {
  std::string text = labelled_line("", points_headline(sweep), 0);
  if (sweep.rows.empty()) return text + "no point was finished\n";
  text += Table(sweep).brief();
  for (const SweepRow& row : sweep.rows) {
    const std::string name = fmt::format("{} devices of {}", grouped(row.point.devices),
                                         series_name(row.point, varying_columns(sweep)));
    if (!row.plan) text += labelled_line("", fmt::format("{}: {}", name, row.reason), 0);
    if (row.plan && !row.plan->proven)
      text += labelled_line("", fmt::format("{}: {}", name, doubt_of(*row.plan)), 0);
  }
  if (!answer_of(sweep).fastest) return text;  // the command's message tells
  for (const std::string& line : answer_lines(sweep)) text += labelled_line("", line, 0);
  return text;
}

std::string sweep_text(const Sweep& sweep) {
  std::string text = sweep_headline(sweep) + "\n";
  if (sweep.rows.empty()) return text + "no point was finished\n";
  text += Table(sweep).text();
  for (const std::string& line : answer_lines(sweep)) text += line + "\n";
  return text;
}

}  // namespace plimsoll
