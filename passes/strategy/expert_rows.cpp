// The room for rows of experts: all that can come, or a tail bound of the binomial distribution.
#include "passes/strategy/expert_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

constexpr std::int64_t kRounding = 5;  // percent

/// Returns the relative entropy of a coin with probability q to one with p, in nats.
double relative_entropy(double q, double p) {
  const double rest = q < 1 ? (1 - q) * std::log((1 - q) / (1 - p)) : 0;
  return q * std::log(q / p) + rest;
}

/// Returns the least factor x in [1, ep] for which `draws` of probability 1/ep give x times their
/// mean with a probability of at most exp(-exponent).
double chance_factor(double draws, double ep, double exponent) {
  double low = 1, high = ep;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (draws * relative_entropy(middle / ep, 1 / ep) < exponent ? low : high) = middle;
  }
  return high;
}

}  // namespace

std::int64_t most_rows_percent(const Experts& experts, std::int64_t ep) {
  const std::int64_t of_token = std::min(experts.chosen, experts.count / ep);
  return (100 * of_token * ep + experts.chosen - 1) / experts.chosen;
}

RowsRoom rows_room(const Job& job, const Framework& framework, const Strategy& strategy) {
  const Experts& experts = *job.experts;
  if (strategy.experts.rows_percent > 0) return {strategy.experts.rows_percent, RoomBasis::stated};
  const std::int64_t most = most_rows_percent(experts, strategy.ep);
  const bool is_planned = framework.memory.allocator.kind == AllocatorKind::arena;
  if (is_planned && !experts.drop_overflow) return {most, RoomBasis::all_rows};
  const double ep = double(strategy.ep);
  const double tokens =
      double(strategy.micro_batch) * double(job.sequence) * ep / double(strategy.mp * strategy.cp);
  // An allocator holds the rows of all layers of a stage together; planned memory those of each.
  const auto together =
      double(is_planned ? 1 : std::max<std::int64_t>(1, job.layers / strategy.pp));
  const double events = double(job.layers) / together * ep * kMicroBatchesOfRun;
  const double draws = tokens * double(experts.chosen) * together;
  const double load = experts.load * chance_factor(draws, ep, std::log(events * kRunsForOverflow));
  const auto steps = std::int64_t(std::ceil(100 * load / double(kRounding)));
  return {std::min(most, kRounding * steps), RoomBasis::likely};
}

std::string describe(const RowsRoom& room, const Experts& experts) {
  const auto basis = [&]() -> std::string {
    switch (room.basis) {
      case RoomBasis::stated:
        return fmt::format("as stated; more rows {}",
                           experts.drop_overflow ? "are dropped" : "end the run");
      case RoomBasis::all_rows:
        return "all rows that can come, so that no step has more";
      case RoomBasis::likely:
        return fmt::format("for a load of {:g}; by chance fewer than 1 run in {:g} gets more",
                           experts.load, kRunsForOverflow);
    }
    return {};
  };
  return fmt::format("  expert rows room for {} % of even routing: {}\n", room.percent, basis());
}

}  // namespace plimsoll
