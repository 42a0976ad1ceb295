// Searches every point of a sweep and reckons what a training costs there.
#include "planner/sweep/sweep.h"

#include <algorithm>
#include <chrono>

#include "plan/filling.h"
#include "planner/search/search.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

PointPlan point_plan(const Plan& plan, std::string costs) {
  const std::vector<Filling> fillings = fillings_of(plan);
  const Filling& fullest = fillings[fullest_of(fillings)];
  PointPlan result;
  result.strategy = plan.strategy;
  result.layout = layout_text(plan.job, plan.framework, plan.strategy);
  result.step_time = plan.prediction.step_time;
  result.step_time_low = plan.prediction.step_time_low;
  result.step_time_high = plan.prediction.step_time_high;
  result.tokens_per_second = plan.prediction.tokens_per_second;
  result.mfu = plan.prediction.mfu;
  result.taken = fullest.taken();
  result.capacity = fullest.capacity;
  result.filled = fullest.share();
  result.proven = plan.search.proven;
  result.gap = plan.search.gap;
  result.costs = std::move(costs);
  return result;
}

class Sweeper {
 public:
  explicit Sweeper(const SweepRequest& request) : request_(request), begin_(Clock::now()) {}

  Sweep run() {
    Sweep sweep;
    sweep.goal = request_.goal;
    sweep.has_prices = true;
    for (std::size_t i = 0; i < request_.points; ++i) {
      std::optional<SweepRow> row;
      if (!is_stopped() && time_left() != Seconds(0)) row = row_of(i, sweep.has_prices);
      if (!row) {
        sweep.left = request_.points - i;
        break;
      }
      sweep.rows.push_back(*std::move(row));
      report(i + 1);
    }
    return sweep;
  }

 private:
  void report(std::size_t done) const {
    if (request_.progress) request_.progress(done, request_.points);
  }

  bool is_stopped() const { return request_.stop && request_.stop(); }

  /// Returns what is left of the limit of all points.
  std::optional<Seconds> time_left() const {
    if (!request_.time_limit) return std::nullopt;
    const std::chrono::duration<double> taken = Clock::now() - begin_;
    return Seconds(std::max(0.0, request_.time_limit->value() - taken.count()));
  }

  std::optional<Seconds> limit() const {
    const std::optional<Seconds> left = time_left();
    if (!left || !request_.point_limit) return left ? left : request_.point_limit;
    return std::min(*left, *request_.point_limit);
  }

  /// Returns the row of a point; nothing where the sweep was stopped before it was finished.
  std::optional<SweepRow> row_of(std::size_t index, bool& has_prices) const {
    SweepRow row;
    row.point = request_.name(index);
    try {
      LoadedPoint loaded = request_.load(index);
      row.point = loaded.point;
      if (!loaded.price) has_prices = false;
      SearchRequest& search_request = loaded.request;
      search_request.threads = request_.threads;
      search_request.tolerance = kNoRunnersUp;
      search_request.time_limit = limit();
      search_request.stop = request_.stop;
      search_request.progress = [&](std::int64_t, std::int64_t) { report(index); };
      const Plan plan = search(search_request);
      if (is_stopped() && !plan.search.proven) return std::nullopt;
      row.plan = point_plan(plan, std::move(loaded.costs));
      if (request_.goal.tokens)
        row.plan->training =
            training_of(training_step(plan), {*request_.goal.tokens, loaded.price});
    } catch (const NothingFoundYet&) {
      if (is_stopped()) return std::nullopt;
      row.unfinished = true;
      row.reason = "no plan that fits was found within the time limit";
    } catch (const NothingFits&) {  // its words depend on the time that there was for them
      row.reason = "no strategy fits the memory of these devices";
    } catch (const InfeasibleError& error) {
      row.reason = error.what();
    } catch (const InputError& error) {
      row.reason = error.what();
    }
    return row;
  }

  const SweepRequest& request_;
  const Clock::time_point begin_;
};

/// Returns what the cheapest row is chosen by: cost, else hours of devices, per token.
Amount price_of(const Sweep& sweep, const SweepRow& row) {
  const PointPlan& plan = *row.plan;
  if (plan.training && plan.training->cost && sweep.has_prices) return *plan.training->cost;
  if (plan.training) return plan.training->device_hours;
  const double devices = double(row.point.devices) / plan.tokens_per_second;
  const double step = plan.step_time.value();
  return {devices, devices * (plan.step_time_low.value() / step),
          devices * (plan.step_time_high.value() / step)};
}

bool is_in_time(const Sweep& sweep, const SweepRow& row) {
  if (!row.plan) return false;
  if (!sweep.goal.deadline || !row.plan->training) return true;
  return row.plan->training->days.value * 86400 <= sweep.goal.deadline->value();
}

}  // namespace

Sweep run_sweep(const SweepRequest& request) { return Sweeper(request).run(); }

Deadline deadline_of(const Training& training, Seconds deadline) {
  const double days = deadline.value() / 86400;
  if (training.days.high <= days) return Deadline::kept;
  return training.days.low <= days ? Deadline::open : Deadline::missed;
}

std::string_view to_text(Deadline deadline) {
  static constexpr std::string_view kWords[] = {"yes", "maybe", "no"};
  return kWords[std::size_t(deadline)];
}

SweepAnswer answer_of(const Sweep& sweep) {
  SweepAnswer answer;
  const std::vector<SweepRow>& rows = sweep.rows;
  const auto speed = [&](std::size_t i) { return rows[i].plan->tokens_per_second; };
  const auto price = [&](std::size_t i) { return price_of(sweep, rows[i]).value; };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].plan) continue;
    if (!answer.fastest || speed(i) > speed(*answer.fastest)) answer.fastest = i;
    if (!is_in_time(sweep, rows[i])) continue;
    const std::optional<std::size_t>& best = answer.cheapest;
    if (!best || price(i) < price(*best) || (price(i) == price(*best) && speed(i) > speed(*best)))
      answer.cheapest = i;
  }
  if (!answer.cheapest) return answer;
  const Amount least = price_of(sweep, rows[*answer.cheapest]);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == *answer.cheapest || !is_in_time(sweep, rows[i])) continue;
    answer.not_told_apart += price_of(sweep, rows[i]).low <= least.high;
  }
  return answer;
}

}  // namespace plimsoll
