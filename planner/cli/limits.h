// Limits: the largest values of arguments that questions take, from a command line or from Python.
#pragma once

#include <cstdint>

namespace plimsoll {

inline constexpr std::int64_t kMostGlobalBatch = std::int64_t{1} << 24;  ///< sequences per step
inline constexpr std::int64_t kMostSequence = std::int64_t{1} << 27;     ///< tokens
inline constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 24;   ///< tokens
inline constexpr std::int64_t kMostThreads = 1024;
/// Plans of one list. Each is simulated once more, to say where its step goes.
inline constexpr std::int64_t kMostListedPlans = 100;
inline constexpr double kMostDropout = 0.999999;

}  // namespace plimsoll
