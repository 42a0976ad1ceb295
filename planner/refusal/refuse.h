// Refusals: says why no strategy fits, and which changes would help.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plan/filling.h"
#include "planner/explore/search_request.h"
#include "planner/refusal/least_changes.h"

namespace plimsoll {

/// A Shortage says what does not fit, and on which device. If nothing is missing there, it is the
/// host that has too little memory.
struct Shortage {
  std::string what;  ///< "llama3-8b does not fit on 4 GPUs of dgx-a100-40gb"
  Filling filling;
};

/// No strategy fits, whatever the time (exit 4).
class NothingFits : public InfeasibleError {
 public:
  NothingFits(const std::string& why, Shortage shortage, FoundChanges changes)
      : InfeasibleError(why), shortage_(std::move(shortage)), found_(std::move(changes)) {}
  const Shortage& shortage() const { return shortage_; }
  const FoundChanges& found() const { return found_; }
  /// Returns a line for each change with which something fits, then the notes.
  std::vector<std::string> changes() const;

 private:
  Shortage shortage_;
  FoundChanges found_;
};

/// Throws NothingFits with the legal strategy of least need, found by bounds, and with changes that
/// would help (least_changes.h). If that strategy fits but takes too long, it throws
/// InfeasibleError. `lasting_fits` says that the bytes that live between steps fit for some
/// strategy. The search for changes ends at the request's time limit. Without one it ends after so
/// much work, wherever it runs. It says what it left out.
[[noreturn]] void refuse(const SearchRequest& request, const Space& space, bool lasting_fits);

}  // namespace plimsoll
