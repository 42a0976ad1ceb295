// Contributions of many ranks or groups that measured at once become one number, and outliers are
// named. The result of each test is added to a calibration.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "calibrate/measure/dispatch.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

struct Contribution {
  std::string who;  ///< "rank 3 on host1"
  Sample sample;
};

/// Returns the median contribution. Its spread is the usual spread of one contribution or the
/// spread between them, whichever is larger. `unsteady` is as in Sample. The list must not be
/// empty.
Sample merged(std::span<const Contribution> contributions);

/// A rank or group is named as an outlier if it was slower by kSlower in this share of tests.
inline constexpr double kNamedFrom = 0.5;
inline constexpr double kSlower = 1.25;  ///< relative to the median of all

/// Outliers counts over tests which rank or group was slower than the others.
class Outliers {
 public:
  /// Looks at one test. Fewer than three contributions are ignored, since neither of two is apart.
  void add_test(std::span<const Contribution> contributions);
  /// Returns the outliers in words, in the order in which they were first seen.
  std::vector<std::string> named() const;

 private:
  struct Seen {
    std::string who;
    std::size_t tests = 0, slower = 0;
    double times = 0;  ///< sum over the slower tests of the time relative to the median
  };
  std::vector<Seen> seen_;
};

/// The result of a LaunchTest. Each test of a cluster's schedule has one of the results below.
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
