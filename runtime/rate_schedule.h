// A RateSchedule changes the learning rate from update to update: it warms up, and decays.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/sequence_part.h"

namespace plimsoll {

enum class RateDecay : std::uint8_t { constant, linear, cosine };

struct RateSchedule {
  std::int64_t warmup = 0;  ///< updates until the rate is the optimizer's
  std::int64_t decay = 0;   ///< updates until it is the least; more than `warmup` where it decays
  RateDecay shape = RateDecay::constant;
  double least = 0;  ///< the rate behind them, as a share of the optimizer's
  bool operator==(const RateSchedule&) const = default;
};

/// Returns the factor of the learning rate in an update, counted from 1; skipped steps are none. In
/// the warm-up it is update / warmup, as torchtitan has it (components/lr_scheduler.py): the first
/// update does something. Behind it decays over x = (update - warmup) / (decay - warmup) by 1 - x
/// or (1 + cos(pi x)) / 2, as Megatron-LM has it (megatron/core/optimizer_param_scheduler.py,
/// get_lr).
PLIMSOLL_ANYWHERE inline double rate_factor(const RateSchedule& schedule, double update) {
  if (update < double(schedule.warmup)) return update / double(schedule.warmup);
  if (schedule.shape == RateDecay::constant) return 1;
  if (update >= double(schedule.decay)) return schedule.least;
  const double x = (update - double(schedule.warmup)) / double(schedule.decay - schedule.warmup);
  const double left =
      schedule.shape == RateDecay::linear ? 1 - x : 0.5 * (1 + cos(3.14159265358979323846 * x));
  return schedule.least + (1 - schedule.least) * left;
}

}  // namespace plimsoll
