// Explain request: the plan or the running job that is explained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "passes/strategy/constraints.h"
#include "passes/strategy/strategy.h"
#include "predict/target.h"

namespace plimsoll {

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

}  // namespace plimsoll
