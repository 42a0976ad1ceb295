// Refusals: says why no strategy fits, and which changes would help.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "planner/explore/search_request.h"

namespace plimsoll {

/// No strategy fits, whatever the time (exit 4).
class NothingFits : public InfeasibleError {
 public:
  NothingFits(const std::string& why, std::vector<std::string> changes)
      : InfeasibleError(why), changes_(std::move(changes)) {}
  /// Returns a line for each change with which something fits.
  const std::vector<std::string>& changes() const { return changes_; }

 private:
  std::vector<std::string> changes_;
};

/// Throws NothingFits with the legal strategy of least need, found by bounds, and with changes that
/// would help (least_changes.h). If that strategy fits but takes too long, it throws
/// InfeasibleError. `lasting_fits` says that the bytes that live between steps fit for some
/// strategy. The search for changes ends at the request's time limit. Without one it ends after so
/// much work, wherever it runs. It says what it left out.
[[noreturn]] void refuse(const SearchRequest& request, const Space& space, bool lasting_fits);

}  // namespace plimsoll
