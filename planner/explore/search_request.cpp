// The space that a search request spans.
#include "planner/explore/search_request.h"

#include <fmt/format.h>

namespace plimsoll {

Space enumerate(const SearchRequest& request) {
  const Target& target = request.target;
  const Constraints& held = request.constraints;
  return enumerate(target.job, target.framework(), target.devices, held.fixed,
                   units_of(target.cluster()), held.limits, held.tried);
}

std::string devices_text(std::int64_t devices) {
  return fmt::format("{} device{}", devices, devices == 1 ? "" : "s");
}

}  // namespace plimsoll
