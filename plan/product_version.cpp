// The version of the product, as the build states it.
#include "plan/plan.h"

namespace plimsoll {

constinit const std::string_view kProductVersion = PLIMSOLL_VERSION;

}  // namespace plimsoll
