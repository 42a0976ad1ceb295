// The null backend supports every op and does nothing, so only the host's own dispatch cost
// remains.
#pragma once

#include <memory>

#include "runtime/backend.h"

namespace plimsoll {

std::unique_ptr<Backend> make_null_backend();

}  // namespace plimsoll
