// Gradients of a backend are compared with central differences of the float64 reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "graph/op_table.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {

inline constexpr double kDifferenceStep = 1e-4;
inline constexpr double kGradientTolerance = 5e-6;  // relative to the largest gradient

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// d loss / d x by central differences; `x` is restored.
inline std::vector<double> differences(std::vector<double>& x,
                                       const std::function<double()>& loss) {
  std::vector<double> gradient;
  for (double& element : x) {
    const double value = element;
    element = value + kDifferenceStep;
    const double above = loss();
    element = value - kDifferenceStep;
    const double below = loss();
    element = value;
    gradient.push_back((above - below) / (2 * kDifferenceStep));
  }
  return gradient;
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                        const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 0;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 0) << what << ": the difference says nothing";
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], kGradientTolerance * largest) << what << " element " << i;
  }
}

/// Returns the values that a backend adds to or writes into each output of the case.
inline std::vector<std::vector<double>> gradients_by_backend(const OpCase& c) {
  const Values after = run_case(*make_backend("cpu"), c);
  std::vector<std::vector<double>> result;
  for (std::size_t i = 0; i < c.op.outputs.size(); ++i) {
    const std::size_t id = c.op.outputs[i].index();
    result.push_back(after[id]);
    if (!accumulates(c.op, i)) continue;
    for (std::size_t j = 0; j < result[i].size(); ++j) result[i][j] -= c.before[id][j];
  }
  return result;
}

}  // namespace plimsoll
