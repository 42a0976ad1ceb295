// How much memory a prediction holds for rows of experts, whose number depends on the router.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "passes/strategy/expert_rows.h"
#include "plan/filling.h"
#include "predict/target.h"

namespace plimsoll {

/// The largest peak over stages, by the rows for which each rank's experts have memory.
struct ExpertMemory {
  RowsRoom room;                  ///< of the strategy
  std::int64_t most_percent = 0;  ///< of even routing, with room for all rows that can come
  Bytes balanced, roomy, most;
  bool drops = false;  ///< more rows are dropped; else they end a run
};
/// Returns nothing where no ranks share experts out: each then has memory for all its rows.
std::optional<ExpertMemory> expert_memory(const Target& target, const Strategy& strategy);
/// Returns two lines: the peaks, and where the room comes from.
std::string describe(const ExpertMemory& memory, const Experts& experts);

/// Fits says whether a strategy fits its devices.
enum class Fits : std::uint8_t {
  yes,
  /// It does with memory for the rows of even routing, but not with the room that it has for rows
  /// of experts.
  with_even_routing,
  no,
};
inline constexpr std::string_view kFits[] = {"yes", "with_even_routing", "no"};

struct FitsAnswer {
  Fits fits = Fits::yes;
  Filling fullest;              ///< the device with least room left, with the strategy's room
  std::optional<Filling> even;  ///< the same for even routing, where that is needed for the answer
};
/// `stages` are the strategy's, with their allocator replayed.
FitsAnswer fits_answer(const Target& target, const Strategy& strategy,
                       std::span<const StagePrediction> stages);
/// Returns a sentence with both sizes. `answer` has one for even routing.
std::string describe_both(const FitsAnswer& answer);

}  // namespace plimsoll
