// Contributions: one number from what many ranks or groups measured at once, and who is apart.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/calibration/calibration.h"

namespace plimsoll {

struct Contribution {
  std::string who;  ///< "rank 3 on host1"
  Sample sample;
};

/// The median contribution; its spread is the larger of the usual spread of one and of that between
/// them. `unsteady` as in Sample. There must be some.
Sample merged(std::span<const Contribution> contributions);

/// Share of tests in which one was slower than the others by kSlower from which it is named.
inline constexpr double kNamedFrom = 0.5;
inline constexpr double kSlower = 1.25;  ///< times the median of all

/// Counts over tests who was slower than the others.
class Outliers {
 public:
  /// Says nothing of fewer than three: none of two is apart from the others.
  void look_at(std::span<const Contribution> contributions);
  /// In words, in the order they were first seen.
  std::vector<std::string> named() const;

 private:
  struct Seen {
    std::string who;
    std::size_t tests = 0, slower = 0;
    double times = 0;  ///< sum over those: times the median
  };
  std::vector<Seen> seen_;
};

}  // namespace plimsoll
