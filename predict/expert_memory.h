// How much memory a prediction holds for rows of experts, whose number depends on the router.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "predict/target.h"

namespace plimsoll {

/// The largest peak over stages, by the rows for which each rank's experts have memory.
struct ExpertMemory {
  std::int64_t rows_percent = 0;  ///< of even routing, as the strategy states it
  std::int64_t most_percent = 0;  ///< of even routing, where all rows are at one rank
  Bytes balanced, stated, most;
  bool drops = false;  ///< more rows are dropped; else they end a run
};
/// Returns nothing where no ranks share experts out: each then has memory for all its rows.
std::optional<ExpertMemory> expert_memory(const Target& target, const Strategy& strategy);
/// Returns one line.
std::string describe(const ExpertMemory& memory);

}  // namespace plimsoll
