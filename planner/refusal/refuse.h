// Refusals: why no strategy fits, and what would.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "planner/space/search_request.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// No strategy fits, whatever the time (exit 4).
class NothingFits : public InfeasibleError {
 public:
  NothingFits(const std::string& why, std::vector<std::string> changes)
      : InfeasibleError(why), changes_(std::move(changes)) {}
  /// The changes that would fit: a line for each, in words.
  const std::vector<std::string>& changes() const { return changes_; }

 private:
  std::vector<std::string> changes_;
};

/// Why there is no plan: the strategy of least need among the legal ones (found by bounds), and
/// whether it fits but takes too long; else what would have to be otherwise (least_changes.h).
/// `lives`: what lives between steps fits in some strategy. Looks no longer than the request's time
/// limit, without one for 2 CPU-seconds, and says what it left out.
[[noreturn]] void refuse(const SearchRequest& request, const CostModel& costs, const Space& space,
                         bool lives);

}  // namespace plimsoll
