// Training: days, device-hours and cost of a training on a number of tokens, at a predicted step
// time.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace plimsoll {

/// A number with its 90 % interval.
struct Amount {
  double value = 0, low = 0, high = 0;
  bool operator==(const Amount&) const = default;
};

/// The steps of a training: their time with its 90 % interval, their tokens, and the devices that
/// they run on.
struct TrainingStep {
  Seconds time, low, high;
  std::int64_t tokens = 0;  ///< without padding
  std::int64_t devices = 0;
};

/// A Training is step time times number of steps: no restarts, no evaluation, no checkpoints.
struct Training {
  double tokens = 0;
  std::optional<double> price;  ///< of one device for an hour, in any currency
  std::int64_t steps = 0;       ///< tokens / tokens of a step, rounded up
  Amount days, device_hours;
  std::optional<Amount> cost;  ///< if a price is known
  bool operator==(const Training&) const = default;
};

/// A TrainingGoal is what a training has to reach.
struct TrainingGoal {
  double tokens = 0;
  std::optional<double> price;  ///< of one device for an hour; absent: the cost is not asked for
  bool operator==(const TrainingGoal&) const = default;
};

/// The tokens of a training whose length is not stated.
inline constexpr double kUsualTokens = 100e9;

Training training_of(const TrainingStep& step, const TrainingGoal& goal);

}  // namespace plimsoll
