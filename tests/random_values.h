// Values drawn from a generator's bits alone: distributions differ between standard libraries.
#pragma once

#include <cmath>
#include <initializer_list>
#include <random>

namespace plimsoll {

using Random = std::mt19937_64;

template <class Value>
Value one_of(Random& random, std::initializer_list<Value> values) {
  return values.begin()[random() % values.size()];
}

inline bool coin(Random& random) { return random() % 2 == 0; }

/// Between `low` and `low` x 10^decades, evenly in its logarithm.
inline double spread(Random& random, double low, double decades) {
  return low * std::pow(10, decades * double(random() % 1000) / 1000);
}

}  // namespace plimsoll
