// Found: what one test of a cluster's schedule found. Internal to calibrate.
#pragma once

#include <string>
#include <variant>

#include "calibrate/measure/dispatch.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// The result of a LaunchTest.
struct LaunchCost {
  Sample time;
};

using Found = std::variant<std::monostate, CollectivePoint, OverlapPoint, OpPoint, MatmulPoint,
                           CommunicatorMemory, DispatchCost, LaunchCost, CopyPoint>;

/// Adds it to the rest of what was measured.
void add_found(Calibration& to, const Found& found);
/// A calibration of this alone, and back: of an empty one std::monostate.
Calibration as_calibration(const Found& found, const std::string& date);
Found found_in(const Calibration& only);

/// Curves together, by size, without what came out of the sweep twice.
void put_in_order(Calibration& calibration);

}  // namespace plimsoll
