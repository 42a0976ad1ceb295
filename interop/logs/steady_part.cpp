// Times of steps by each basis, and which of them are steady.
#include "interop/logs/steady_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace plimsoll {
namespace {

/// Seconds that a clock of whole seconds has to tell, for an error of at most 5 %.
constexpr double kCoarse = 20;
/// Seconds; beyond them it is no step.
constexpr double kMostTime = 1e9;
/// Differences that a doubt names.
constexpr double kClocksDiffer = 0.1, kDrifts = 0.1, kRatesDiffer = 0.2;

bool is_clock(LogTimeBasis basis) {
  return basis == LogTimeBasis::elapsed || basis == LogTimeBasis::time_stamps;
}

/// Returns the time that a step's own values tell. `before` is the step before it in the same run,
/// if there is one.
std::optional<double> time_of(const LogStep& step, const LogStep* before, LogTimeBasis basis) {
  std::optional<double> time;
  if (basis == LogTimeBasis::throughput) {
    const auto samples = step.value(LogQuantity::samples);
    const auto sequence = step.value(LogQuantity::sequence);
    const auto rate = step.value(LogQuantity::samples_per_second);
    const auto tokens = step.value(LogQuantity::tokens_per_second);
    if (samples && rate) {
      time = *samples / *rate;
    } else if (samples && sequence && tokens) {
      time = *samples * *sequence / *tokens;
    }
  } else if (const auto printed = step.value(LogQuantity::time)) {
    time = printed;
  } else if (const auto rate = step.value(LogQuantity::steps_per_second)) {
    time = 1 / *rate;
  } else if (const auto interval = step.value(LogQuantity::interval); interval && before) {
    time = *interval / double(step.number - before->number);
  }
  return time && *time > 0 && *time < kMostTime ? time : std::nullopt;
}

struct TimedStep {
  const LogStep* step;
  const LogStep* before;
  double time;
};

/// Returns the steps of a clock: each with the time since the step before it or, where the clock
/// has whole seconds, since the last step that is long enough ago. Where lines of steps are
/// missing, nobody knows what happened, and no time is told.
std::vector<TimedStep> clocked_steps(std::span<const LogStep> steps, LogQuantity clock) {
  std::vector<double> strides;
  bool whole = true;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto at = steps[i].value(clock);
    whole = whole && (!at || *at == std::floor(*at));
    if (i > 0 && steps[i].number > steps[i - 1].number) {
      strides.push_back(double(steps[i].number - steps[i - 1].number));
    }
  }
  std::vector<TimedStep> timed;
  if (strides.empty()) return timed;
  const double most = 2 * quantile_of(std::move(strides), 0.5);
  const LogStep* from = nullptr;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double stride = i > 0 ? double(steps[i].number - steps[i - 1].number) : 1;
    if (!(stride > 0 && stride <= most)) from = nullptr;
    const auto now = steps[i].value(clock);
    if (!now) continue;
    const double past = from == nullptr ? -1 : *now - *from->value(clock);
    if (past < 0) {
      from = &steps[i];
    } else if (past > 0 && past >= (whole ? kCoarse : 0)) {
      const double time = past / double(steps[i].number - from->number);
      if (time < kMostTime) timed.push_back({&steps[i], from, time});
      from = &steps[i];
    }
  }
  return timed;
}

std::vector<TimedStep> timed_steps(std::span<const LogStep> steps, LogTimeBasis basis) {
  if (basis == LogTimeBasis::elapsed) return clocked_steps(steps, LogQuantity::elapsed);
  if (basis == LogTimeBasis::time_stamps) return clocked_steps(steps, LogQuantity::time_stamp);
  std::vector<TimedStep> timed;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LogStep* before =
        i > 0 && steps[i - 1].number < steps[i].number ? &steps[i - 1] : nullptr;
    if (const auto time = time_of(steps[i], before, basis)) {
      timed.push_back({&steps[i], before, *time});
    }
  }
  return timed;
}

std::vector<double> times_of(const std::vector<TimedStep>& steps) {
  std::vector<double> times;
  for (const TimedStep& step : steps) times.push_back(step.time);
  return times;
}

bool all_skipped(const TimedStep& timed) {
  const auto skipped = timed.step->value(LogQuantity::skipped);
  if (!skipped || timed.before == nullptr) return false;
  return *skipped >= double(timed.step->number - timed.before->number);
}

std::optional<LeftOutReason> disturbance(const TimedStep& timed, double median) {
  if (all_skipped(timed)) return LeftOutReason::skipped;
  if (timed.time >= median / 2 && timed.time <= median * 2) return std::nullopt;
  if (timed.step->evaluated) return LeftOutReason::evaluation;
  return timed.step->saved ? LeftOutReason::checkpoint : LeftOutReason::outlier;
}

/// Fills in what the arguments state and the steps do not.
void fill_in(TrainingLog& log) {
  const auto stated = [&](std::initializer_list<const char*> names) -> std::optional<double> {
    for (const char* name : names) {
      const auto found = log.arguments.find(name);
      if (found == log.arguments.end()) continue;
      const std::string& text = found->second.value;
      double value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error == std::errc() && end == text.data() + text.size() && value >= 1 && value < 1e15) {
        return value;
      }
    }
    return std::nullopt;
  };
  const auto samples = stated({"global_batch_size", "train_batch_size"});
  const auto sequence = stated({"seq_length", "encoder_seq_length", "max_target_length"});
  const auto devices = stated({"world_size", "global_num_gpus"});
  for (LogStep& step : log.steps) {
    auto& batch = step.values[std::size_t(LogQuantity::samples)];
    auto& length = step.values[std::size_t(LogQuantity::sequence)];
    auto& tokens = step.values[std::size_t(LogQuantity::tokens_per_second)];
    const auto of_device = step.value(LogQuantity::device_tokens_per_second);
    if (!batch) batch = samples;
    if (!length) length = sequence;
    if (!tokens && of_device && devices) tokens = *of_device * *devices;
  }
}

void set_medians(TrainingLog& log) {
  std::vector<const LogStep*> kept;
  std::size_t out = 0;
  for (std::size_t i = 0; i < log.steps.size(); ++i) {
    const LogStep& step = log.steps[i];
    bool left_out = !log.steady && i == 0 && log.steps.size() > 1;
    if (log.steady && out < log.steady->left_out.size() &&
        log.steady->left_out[out].line == step.line &&
        log.steady->left_out[out].number == step.number) {
      left_out = true;
      ++out;
    }
    if (!left_out) kept.push_back(&step);
  }
  for (std::size_t i = 0; i < kStepQuantities; ++i) {
    std::vector<double> values;
    for (const LogStep* step : kept) {
      if (step->values[i]) values.push_back(*step->values[i]);
    }
    if (!values.empty()) log.medians[i] = quantile_of(std::move(values), 0.5);
  }
}

void add_doubts(TrainingLog& log) {
  const auto say = [&](std::string text) { log.doubts.push_back(std::move(text)); };
  if (log.run_begins.size() > 1) {
    std::string lines;
    for (std::size_t i = 1; i < std::min<std::size_t>(log.run_begins.size(), 11); ++i) {
      lines += fmt::format("{}{}", i > 1 ? ", " : "", log.steps[log.run_begins[i]].line);
    }
    say(fmt::format("{} runs are joined: the numbers of steps go back in line {}",
                    log.run_begins.size(), lines));
  }
  if (log.distinct_steps > std::int64_t(log.steps.size())) {
    say(fmt::format("{} of {} steps are kept, spread evenly", log.steps.size(),
                    log.distinct_steps));
  }
  std::vector<double> batches;
  for (const LogStep& step : log.steps) {
    if (const auto batch = step.value(LogQuantity::samples)) batches.push_back(*batch);
  }
  if (const auto [least, most] =
          std::ranges::minmax(batches.empty() ? std::vector<double>{0} : batches);
      least < most) {
    say(fmt::format("the global batch changes, from {} to {}", least, most));
  }
  const auto of = [&](LogQuantity quantity) { return log.medians[std::size_t(quantity)]; };
  const auto rate = of(LogQuantity::samples_per_second);
  if (!log.steady) {
    const bool rates =
        rate || of(LogQuantity::tokens_per_second) || of(LogQuantity::device_tokens_per_second);
    say(log.mean_step ? "no time of a step is printed, only that of the whole run"
        : rates       ? "no time of a step is printed; it needs the rate and the batch, and "
                        "one is missing"
                      : "no time of a step is printed, and nothing that it follows from");
    return;
  }
  const double median = log.steady->median.value();
  if (log.steady->steps == 1 && !is_clock(log.steady->basis) && log.steady->left_out.empty()) {
    say("there is one step only, and the start-up may be in it");
  }
  if (log.steady->basis == LogTimeBasis::throughput) {
    say("the time follows from the batch and the throughput; no time is printed");
  } else if (log.steady->basis == LogTimeBasis::time_stamps) {
    say("the time follows from the time stamps of lines; no time is printed");
  }
  if (log.by_clock) {
    const double clock = log.by_clock->median.value();
    if (std::abs(clock - median) > kClocksDiffer * median) {
      say(fmt::format(
          "{:.4g} s a step as printed, but {:.4g} s by the {}", median, clock,
          log.by_clock->basis == LogTimeBasis::elapsed ? "clock that is printed" : "time stamps"));
    }
  }
  const auto samples = of(LogQuantity::samples);
  if (samples && rate && std::abs(*rate * median / *samples - 1) > kRatesDiffer) {
    say(fmt::format("{:.4g} samples/s are printed, but the batch over the time is {:.4g}", *rate,
                    *samples / median));
  }
  const auto& trend = log.steady->trend;
  if (trend && std::abs(trend->change) > std::max(kDrifts, trend->half_width)) {
    say(fmt::format("the steps drift: {:+.1f} % from the first to the last",
                    100 * std::expm1(trend->change)));
  }
}

}  // namespace

double quantile_of(std::vector<double> values, double part) {
  std::ranges::sort(values);
  const double at = part * double(values.size() - 1);
  const auto below = std::size_t(at);
  const double above = values[std::min(below + 1, values.size() - 1)];
  return values[below] + (at - double(below)) * (above - values[below]);
}

std::optional<SteadyPart> steady_part(std::span<const LogStep> steps, LogTimeBasis basis) {
  std::vector<TimedStep> timed = timed_steps(steps, basis);
  if (timed.empty()) return std::nullopt;
  SteadyPart part{.basis = basis};
  const auto leave_out = [&](const LogStep& step, LeftOutReason reason) {
    part.left_out.push_back({step.number, step.line, reason});
  };
  // A difference of clocks begins with the second step.
  if (timed.size() > 1 && !is_clock(basis)) {
    leave_out(*timed.front().step, LeftOutReason::first);
    timed.erase(timed.begin());
  }
  const double median = quantile_of(times_of(timed), 0.5);
  std::vector<TimedStep> kept;
  for (const TimedStep& step : timed) {
    if (const auto reason = disturbance(step, median)) {
      leave_out(*step.step, *reason);
    } else {
      kept.push_back(step);
    }
  }
  if (kept.empty()) kept = timed;  // all skipped the optimizer
  const std::vector<double> times = times_of(kept);
  part.median = Seconds(quantile_of(times, 0.5));
  part.lower_quartile = Seconds(quantile_of(times, 0.25));
  part.upper_quartile = Seconds(quantile_of(times, 0.75));
  part.steps = std::int64_t(kept.size());
  part.trend = trend_of(times);
  std::vector<std::int64_t> numbers;
  for (const TimedStep& step : timed) numbers.push_back(step.step->number);
  part.slow = slow_steps(numbers, times_of(timed), part);
  return part;
}

void tell_times(TrainingLog& log, bool smoothed) {
  fill_in(log);
  std::optional<SteadyPart> clock = steady_part(log.steps, LogTimeBasis::elapsed);
  if (!clock) clock = steady_part(log.steps, LogTimeBasis::time_stamps);
  log.steady = steady_part(log.steps, smoothed ? LogTimeBasis::smoothed : LogTimeBasis::printed);
  if (log.steady) {
    log.by_clock = std::move(clock);
  } else {
    log.steady = clock ? std::move(clock) : steady_part(log.steps, LogTimeBasis::throughput);
  }
  set_medians(log);
  add_doubts(log);
}

}  // namespace plimsoll
