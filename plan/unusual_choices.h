// Unusual choices: what a practitioner does only for a gain, and the gain that each requires.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

enum class UnusualChoice : std::uint8_t {
  context_split,        ///< cp above 1 for sequences shorter than kUsualContext
  tensor_over_nodes,    ///< a layer's products are shared by ranks of several nodes
  odd_micro_batch,      ///< a micro-batch that is no power of two
  many_virtual_stages,  ///< more than kUsualVirtualStages
  uneven_layers,        ///< stages of equal devices between the first and the last differ in layers
  pipeline_alone,       ///< kAlone stages or more, and no other way of parallelism
  tight_memory,         ///< the 90 % interval of its memory does not fit (MemoryVerdict::tight)
};
inline constexpr std::size_t kUnusualChoices = 7;

/// Published layouts split sequences from here on: 68 of 80 that do have at least 8,192 tokens
/// (docs/results/recommended.md).
inline constexpr std::int64_t kUsualContext = 8192;
/// Four in five published layouts with a pipeline have at most this many
/// (docs/results/recommended.md).
inline constexpr std::int64_t kUsualVirtualStages = 4;
/// From this number of devices on, few published layouts have a pipeline alone
/// (docs/results/recommended.md).
inline constexpr std::int64_t kAlone = 4;

/// A row of the table of unusual choices.
struct UnusualRule {
  std::string_view key;    ///< in files: "context_split"
  std::string_view words;  ///< "context split of sequences under 8,192 tokens"
  /// The strategy's fields that make the choice. A choice that the user made counts as usual.
  std::span<const std::string_view> fields;
  /// The predicted gain that one measure of it requires over the best plan without it, as a share
  /// of that plan's step. lab/regret chose it by the regret of published tables. Virtual stages
  /// are measured in doublings of kUsualVirtualStages. Tight memory is measured by the odds that
  /// the plan does not fit, so its gain is what a failed start costs, as a share of a run.
  double gain = 0;
};
const UnusualRule& rule_of(UnusualChoice choice);

/// An unusual choice of a plan, with the gain that it requires there.
struct Unusual {
  Unusual(UnusualChoice what, double measure = 1)
      : choice(what), gain(measure * rule_of(what).gain) {}
  UnusualChoice choice;
  double gain;
  auto operator<=>(const Unusual&) const = default;
};

/// The facts of a plan's devices that make a choice unusual.
struct UsualDevices {
  std::int64_t per_node = 1;
  bool mixed = false;  ///< of several kinds
};
/// Returns the unusual choices of a strategy, in order. Tight memory is not among them, since it
/// does not follow from the strategy alone.
std::vector<Unusual> unusual_choices(const Job& job, const Strategy& strategy,
                                     UsualDevices devices);

/// Returns the factor on a step time by which plans with these choices are compared: the product of
/// (1 + gain), at least 1.
double handicap(std::span<const Unusual> choices);

/// Returns the step time that plans are compared by. Of two plans the one with the lower value is
/// recommended.
inline Seconds merit(Seconds step, std::span<const Unusual> choices) {
  return step * handicap(choices);
}

/// Returns the words of all, with commas.
std::string words_of(std::span<const Unusual> choices);

}  // namespace plimsoll
