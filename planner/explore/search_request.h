// A request to search: the target, the choices that are fixed, and how long to look.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "plan/plan.h"
#include "planner/explore/runners_up.h"
#include "planner/space/space.h"
#include "predict/target.h"

namespace plimsoll {

/// The longest time limit. The clock holds far more; nobody waits that long.
inline constexpr Seconds kLongestTimeLimit{1e6};

/// A tolerance with which no runner-up needs a proof, since no plan is faster by such a share of a
/// step. Proving them takes most of a search's time.
inline constexpr double kNoRunnersUp = 1e9;

struct SearchRequest {
  Target target;
  Constraints constraints{};
  PlanInputs inputs{};
  /// The number of candidates evaluated at once; 0 stands for the number of the machine's cores.
  /// The plan does not depend on it.
  std::int64_t threads = 0;
  /// The chosen plan is proven best. Runners-up and the front are proven to this share of a step:
  /// no plan that would take the place of one of them is faster by more.
  double tolerance = 0.02;
  Shown shown{};  ///< the plans beside the best one
  /// Recommends the fastest plan, whatever unusual choices it has.
  bool fastest = false;
  /// The wall-clock time of search() after which no bound and no evaluation begins; at most
  /// kLongestTimeLimit. The first plan, which is found before all bounds, is looked for to the end
  /// of one try. With a limit the plan depends on the machine.
  std::optional<Seconds> time_limit{};
  /// The search asks this from time to time. When it returns true, the search ends as at a time
  /// limit.
  std::function<bool()> stop{};
  /// One thread calls this after each round with the number of legal strategies that are done with
  /// and the number of all. The first number never falls.
  std::function<void(std::int64_t done, std::int64_t of)> progress{};
};

/// Returns all strategies that the request allows.
Space enumerate(const SearchRequest& request);

/// Returns "1 device", "8 devices".
std::string devices_text(std::int64_t devices);

}  // namespace plimsoll
