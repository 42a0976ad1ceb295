// A GPU reports these facts of itself.
#pragma once

#include <cstdint>

#include "runtime/device_facts.h"

namespace plimsoll {

/// Returns the facts of the GPU that the `local_rank`-th rank of this host uses. Throws
/// EnvironmentError where there is none.
DeviceFacts cuda_device_facts(std::int64_t local_rank);

}  // namespace plimsoll
