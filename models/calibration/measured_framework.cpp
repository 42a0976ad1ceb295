// A framework with what a calibration measured of its memory.
#include "models/calibration/measured_framework.h"

#include <fmt/format.h>

#include <string>

namespace plimsoll {

Framework with_measured_memory(Framework framework, const Calibration& calibration) {
  if (!runs_here(framework)) return framework;
  std::string measured;
  if (calibration.context_memory) {
    framework.memory.process.context = *calibration.context_memory;
    measured = "context";
  }
  const CommunicatorMemory* largest = nullptr;
  for (const CommunicatorMemory& one : calibration.communicator_memory) {
    if (one.communicator != calibration.communicator) continue;
    if (one.ranks == 2) framework.memory.process.pair_communicator = one.held;
    if (largest == nullptr || one.ranks > largest->ranks) largest = &one;
  }
  if (largest != nullptr) {
    framework.memory.process.communicator = largest->held;
    if (!measured.empty()) measured += " and ";
    measured += fmt::format("communicators of up to {} ranks", largest->ranks);
  }
  if (!measured.empty()) {
    framework.sources.memory =
        fmt::format("{}: measured on {} ({} of {}); {}", measured, calibration.date,
                    calibration.backend, calibration.device, framework.sources.memory);
  }
  return framework;
}

}  // namespace plimsoll
