// Sensitivity: how the step of a plan changes with each rate of the machine, with its memory, and
// with each choice. Changes near the plan are listed, simulated and set against it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/strategy/constraints.h"
#include "passes/strategy/strategy.h"
#include "plan/unusual_choices.h"
#include "planner/bounds/bounds.h"
#include "planner/space/space.h"
#include "predict/evaluate.h"
#include "predict/plan_difference.h"
#include "predict/stage_memory.h"
#include "predict/target.h"

namespace plimsoll {

/// A step of the critical rank, with its memory.
struct ExplainedStep {
  Strategy strategy;
  Prediction prediction;
  SlowestRank slowest;  ///< its attention
  /// The terms of the step, which sum to it. Communication is by kind and group: "all_gather over
  /// mp".
  StepParts parts;
  /// For each entry of parts.communication, the level of the cluster that the group spans.
  std::vector<std::string> links;
  /// The part of compute (forward, recompute, backward, optimizer) in ops that only move data.
  Picoseconds memory_traffic;
  std::int64_t critical_stage = 0;  ///< stage of the critical rank, which computes longest
  std::vector<Filling> fillings;    ///< by class of ranks
  StageMemory fullest;              ///< the stage with least room, and what is alive at its peak
  bool fits = false;
};

/// Lowers a legal strategy, simulates all its micro-batches and replays its allocators. Throws
/// InfeasibleError where a step takes longer than the simulator's clock holds.
ExplainedStep explain_step(const Target& target, const Strategy& strategy);

/// Returns what plan_difference.h compares.
PlanTime time_of(const Target& target, const ExplainedStep& step);
/// Returns the name of the innermost level of the cluster that holds the ranks of a group. The
/// group has the name that Simulation::groups gives it; "pp" stands for transfers between stages.
std::string link_of(const CostModel& costs, std::span<const Program> programs,
                    const std::string& group, std::int64_t rank);

/// Returns the strategy with these choices. Another choice changes only where it follows:
///
///   - the ranks that mp, pp and cp leave are sharding_degree where the strategy shards, else dp,
///     unless the choices name one of the two;
///   - sharding_stage follows whether there are shards;
///   - layers are spread evenly where the number of the model's parts changes;
///   - choices that would mean nothing take their default: tokens split over one rank, virtual
///     stages of one stage, layers of a recompute that is none, gathers outside sharding stage 3.
///
/// The result may be illegal. Throws UsageError as set_field() does.
Strategy with_choices(const Strategy& strategy, const Fixed& choices, std::int64_t devices);

/// A Reach is the set of values that changes go to.
enum class Reach : std::uint8_t {
  one_step,  ///< the nearest on each side of the strategy's own
  all,
  /// In addition, what takes less memory: replicas that share gradients or parameters, states in
  /// the host's memory, and memory for even routing of experts' rows.
  to_fit,
};

/// Returns changes of one choice each, among the choices that a search varies and those that free
/// memory (loss_chunks, release_gradients, activations in the host's memory); a degree also trades
/// places with another one. Some may be illegal. None gives the strategy itself, and no two give
/// the same strategy.
std::vector<Fixed> neighbours(const Target& target, const Strategy& strategy, Reach reach);

/// Returns pairs of one change of each list, as one change, where the two name no common key. If
/// both are the same list, each pair comes once.
std::vector<Fixed> pairs_of(const std::vector<Fixed>& first, const std::vector<Fixed>& second);

/// Whether two sets of choices name a common key.
bool share_a_key(const Fixed& a, const Fixed& b);

/// A plan to explain, with what its search held.
struct ExplainRequest {
  Target target;
  Strategy strategy;                    ///< the plan's
  Constraints constraints{};            ///< of its search
  double overflow = 0;                  ///< the plan's own MemoryInterval::overflow
  std::int64_t threads = 0;             ///< as SearchRequest::threads
  std::optional<Seconds> time_limit{};  ///< for each search, as SearchRequest::time_limit
  /// Ends searches, as SearchRequest::stop. Other work that it ends throws NothingFoundYet.
  std::function<bool()> stop{};
  /// Is told how far a search, or a list of changes, is: in strategies, changes or rounds.
  std::function<void(std::int64_t done, std::int64_t of)> progress{};
};

/// Throws NothingFoundYet if the request was asked to stop.
void check_goes_on(const ExplainRequest& request);

enum class ChangeOutcome : std::uint8_t { runs, does_not_fit, too_long, illegal };
/// Returns "runs", "does not fit", "takes too long", "illegal".
std::string_view to_text(ChangeOutcome outcome);

struct AssessedChange {
  Fixed change;       ///< the choices that were changed; others followed (with_choices())
  Strategy strategy;  ///< with the change
  ChangeOutcome outcome = ChangeOutcome::illegal;
  std::string rule;  ///< illegal: the rule that it breaks, with the rule's source
  /// The most bytes that a stage takes of a device, with context. Where it does not fit, they are
  /// those alive at once, and an allocator takes more.
  Bytes need;
  Seconds step_time;  ///< where it runs
  StepRatio ratio;    ///< where it runs: to the plan's step time
  /// Where it runs: unusual choices that count against it, which the changed strategy has and the
  /// one before does not.
  std::vector<Unusual> unusual;
};
/// Returns the step time by which changes that run are compared, with what unusual choices count.
Seconds merit(const AssessedChange& change);

/// Changes a strategy in each of these ways, and assesses all results. Each is lowered and
/// simulated, and its allocators are replayed. The results are in the order of the changes, and do
/// not depend on the number of threads. Progress counts from `before`, `of` all changes there are;
/// absent: of these. Throws NothingFoundYet if the request is asked to stop.
std::vector<AssessedChange> assess_changes(const ExplainRequest& request, const Strategy& strategy,
                                           std::span<const Fixed> changes, const PlanTime& plan,
                                           std::size_t before = 0,
                                           std::optional<std::size_t> of = {});

/// Orders changes by what they bring: those that run, by merit(), then those that do not fit,
/// least need first, then all others. Equal ones keep their order.
void best_first(std::vector<AssessedChange>& changes);

/// A search ends after so many assessed changes.
inline constexpr std::size_t kMostAssessedChanges = 96;

/// A Wanted says what to find among many changes.
struct Wanted {
  std::size_t most = 0;             ///< so many of the fastest
  std::optional<Seconds> below{};   ///< their merit() is less
  bool one_of_each_choice = false;  ///< of changes of the same choices to other values the fastest
};
/// The fastest of many changes, best first.
struct Fastest {
  std::vector<AssessedChange> found;
  /// Whether bounds prove that no other change is faster than the first that is named. It is false
  /// if the search ended after kMostAssessedChanges, or if the request was asked to stop.
  bool proven = true;
};
/// Finds the fastest changes of a strategy that run. Changes are assessed in the order of their
/// least time by bounds. Those that are illegal, that no bound lets fit, or that give the strategy
/// of the request are left out. The result does not depend on the number of threads.
Fastest fastest(const ExplainRequest& request, const Bounds& bounds, const Strategy& strategy,
                std::span<const Fixed> changes, const PlanTime& plan, const Wanted& wanted);

/// Returns the bytes that a stage takes at least: those alive at its peak, with context and
/// reserve; on the stage that takes most.
Bytes least_need(const Target& target, const Strategy& strategy,
                 std::span<const StagePrediction> stages);

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
