// A test result is the result of one test of a cluster's schedule. This header is internal to
// calibrate.
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

using TestResult = std::variant<std::monostate, CollectivePoint, OverlapPoint, OpPoint, MatmulPoint,
                                CommunicatorMemory, DispatchCost, LaunchCost, CopyPoint>;

/// Adds a result to a calibration.
void add_result(Calibration& to, const TestResult& result);
/// Returns a calibration that holds this result alone, dated `date`.
Calibration as_calibration(const TestResult& result, const std::string& date);
/// Returns the result in such a calibration; std::monostate where it is empty.
TestResult result_in(const Calibration& only);

/// Sorts points by curve and size, and drops those that were measured twice.
void put_in_order(Calibration& calibration);

}  // namespace plimsoll
