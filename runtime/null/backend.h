// The null backend: every op is supported and does nothing, so that what remains is the host's own
// dispatch cost.
#pragma once

#include <memory>

#include "runtime/backend.h"

namespace plimsoll {

std::unique_ptr<Backend> make_null_backend();

}  // namespace plimsoll
