// Steps are kept in bounded memory: when there are too many, every second one stays.
#include "interop/logs/step_series.h"

#include <algorithm>
#include <span>
#include <utility>

namespace plimsoll {
namespace {

constexpr std::size_t kMostKept = 65'536;

}  // namespace

void StepSeries::open(std::int64_t number, std::int64_t line, std::optional<double> stamp) {
  const std::size_t known = std::min(recents_, recent_.size());
  const bool again = std::ranges::find(std::span(recent_).first(known), number) !=
                     std::span(recent_).first(known).end();
  if (again) {
    repeated_ = number != last();
    ++repeats_;
    return;
  }
  const bool back = current_ && number < current_->number;
  keep_current();
  if (back) recents_ = 0;
  new_run_ = back || distinct_ == 0;
  recent_[recents_++ % recent_.size()] = number;
  repeated_ = false;
  ++distinct_;
  current_ = {.number = number, .line = line, .evaluated = evaluated_, .saved = saved_};
  evaluated_ = saved_ = false;
  if (stamp) set(LogQuantity::time_stamp, *stamp);
  for (std::size_t i = 0; i < kStepQuantities; ++i) {
    if (ahead_[i]) set(LogQuantity(i), *std::exchange(ahead_[i], std::nullopt));
  }
}

void StepSeries::set(LogQuantity quantity, double value) {
  if (!current_ || repeated_) return;
  auto& place = current_->values[std::size_t(quantity)];
  if (!place) place = value;
  seen_[std::size_t(quantity)] = true;
}

void StepSeries::keep_current() {
  if (!current_) return;
  if (new_run_) run_begins_.push_back(kept_.size());
  if ((distinct_ - 1) % stride_ == 0 || new_run_) kept_.push_back(*current_);
  if (kept_.size() < kMostKept) return;
  for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
  kept_.resize((kept_.size() + 1) / 2);
  stride_ *= 2;
  for (std::size_t& begin : run_begins_) begin = (begin + 1) / 2;
  run_begins_.erase(std::unique(run_begins_.begin(), run_begins_.end()), run_begins_.end());
}

void StepSeries::finish(TrainingLog& log) {
  keep_current();
  current_.reset();
  std::erase_if(run_begins_, [&](std::size_t begin) { return begin >= kept_.size(); });
  log.steps = std::move(kept_);
  log.run_begins = std::move(run_begins_);
  log.distinct_steps = distinct_;
  log.repeats = repeats_;
}

}  // namespace plimsoll
