// Sensitivity: how the plan's step changes with each rate of the machine, with its memory, and with
// each choice.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/explain/assessed_change.h"
#include "planner/explain/explained_step.h"
#include "predict/target.h"

namespace plimsoll {

/// A rate of the machine that can be changed by itself.
enum class Rate : std::uint8_t {
  arithmetic,        ///< products and attention
  memory_bandwidth,  ///< of the devices
  link_within_node,  ///< bandwidth of levels that join devices of one node
  network,           ///< bandwidth of all other levels
  host,              ///< how fast the host issues ops
};
inline constexpr std::array kRates = {Rate::arithmetic, Rate::memory_bandwidth,
                                      Rate::link_within_node, Rate::network, Rate::host};
/// Returns "arithmetic", "memory bandwidth", "links within a node", "network", "host".
std::string_view to_text(Rate rate);

/// Returns the target with `factor` times the rate. The rest stays: shares of the rate that were
/// fitted, fixed times of kernels and latencies of links.
///
///   arithmetic, memory bandwidth, links   the cluster's rates, which fitted shares multiply
///   host                                  all times of the framework for issuing an op are divided
///   all                                   a calibration's measured times are divided as a whole,
///                                         with the fixed part in them
///
/// Returns nothing where the cluster has no such links, neither stated nor measured. Programs and
/// memory of a strategy do not depend on these rates.
std::optional<Target> with_rate(const Target& target, Rate rate, double factor);

/// Returns the target whose devices have `times` the memory.
Target with_memory(const Target& target, std::int64_t times);

/// A change of one rate, and the change of step time that it makes.
inline constexpr double kRateChange = 0.1;

/// The plan's step with another rate, all else being equal.
struct RateEffect {
  Rate rate = Rate::arithmetic;
  bool is_there = false;  ///< whether the cluster has such a rate; else the times mean nothing
  Seconds slower;         ///< step time with 10 % less of the rate
  Seconds faster;         ///< with 10 % more
  Seconds doubled;        ///< with twice the rate
};

/// The best plan of devices with twice the memory, found by a search that holds the same choices.
/// It is the plan itself where the search found nothing faster.
struct MemoryEffect {
  Strategy strategy;
  Seconds step_time;
  StepRatio ratio;     ///< to the plan's step time
  bool proven = true;  ///< false: the search ended before it had looked at all strategies
  std::optional<Seconds> least_step;  ///< no plan takes less; absent: the search ended too early
};

struct Sensitivity {
  std::vector<RateEffect> rates;        ///< in the order of kRates
  std::vector<AssessedChange> changes;  ///< one choice changed, best first
  MemoryEffect memory;
};

/// How many rounds a search with twice the memory may take. Llama-3 70B on 64 GPUs is proven
/// within them, and a proof that needs many times as many finds plans late that are hardly faster.
inline constexpr std::int64_t kMostRounds = 900;

/// Finds what would help the plan most. `plan` is the plan's own step. Without a time limit the
/// search with twice the memory ends after kMostRounds, so that the result does not depend on the
/// machine or the number of threads.
Sensitivity sensitivity(const ExplainRequest& request, const ExplainedStep& plan);

/// Searches a target for the best plan with the request's choices and limits, in at most so many
/// rounds where `most_rounds` is above 0. Runners-up are not proven, which takes most of a search's
/// time.
Plan best_plan(const ExplainRequest& request, const Target& target, std::int64_t most_rounds = 0);

}  // namespace plimsoll
