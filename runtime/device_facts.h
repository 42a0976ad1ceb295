// Device facts are what an accelerator reports of itself.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"

namespace plimsoll {

struct DeviceFacts {
  std::string name;  ///< e.g. "NVIDIA H200"
  std::string bus;   ///< where it is plugged in; unique among the devices of a host
  Bytes memory;      ///< total as the driver reports it
  std::int64_t multiprocessors = 0;
  int compute_capability = 0;  ///< 10 * major + minor
};

}  // namespace plimsoll
